// A thread block runs all steps of one task; after descent.cuh and information.cuh. S, labelled points.

struct Params {
    Adam adam;
    Objective objective;
    real tau;
    int s, steps;
};

extern "C" __global__ void __launch_bounds__(THREADS)
a2lp_tim(const real* all_pieces, const real* all_vectors, const long long* all_codes, const real* rates,
         real* all_weights, const Params p) {
    extern __shared__ double memory[];
    const long long task = blockIdx.x;
    const long long* codes = all_codes + task * p.s;
    real* weights = all_weights + task * C * D;
    Descent t;
    Moments moments;
    t.parts = divide(t, memory);
    real* probabilities = t.parts + SLICES * C * NODES;  // (C, N)
    real* marginal = probabilities + C * N;              // C
    begin(t, moments, all_pieces + task * COLUMNS * ROW * 4, all_vectors + task * N * D, weights);
    for (int step = 0; step < p.steps; step++) {
        const real rate = rates[2 * step], correction = rates[2 * step + 1];
        multiply_nodes(t);
        // without |x|^2, which is the same for all classes
        for (int e = threadIdx.x; e < C * N; e += blockDim.x) {
            const int q = e / N, i = e % N;
            real& product = t.products[q * NODES + i];
            product = p.tau * (product - (real)0.5 * t.products[q * NODES + N + q]);
        }
        __syncthreads();
        softmax(t.products, NODES, probabilities);
        information_gradient(t, probabilities, t.products, NODES, codes, p.s, p.tau, p.objective, marginal, t.slopes,
                             SLOPE_ROW);
        sum_nodes(
            t, 0, N, [&](int q, int i) { return t.slopes[q * SLOPE_ROW + i]; },
            [&](int q, real sum) {
                for (int k = 0; k < C; k++) t.slopes[q * SLOPE_ROW + N + k] = k == q ? -sum : 0;
            });
        descend(t, moments, p.adam, rate, correction);
    }
    store_weights(t, weights);
}
