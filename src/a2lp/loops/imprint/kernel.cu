// A thread block runs all steps of one task, whose points are its support; after descent.cuh.

struct Params {
    Adam adam;
    real tau, scale;
    int numerics, steps;  // numerics: an index into NUMERICS
};

#define EXACT 0
#define OFFICIAL 1

// log(1 + sum of exp(tau (z_j - z_y))) and its gradient; z and h have an entry in every row
__device__ real exact_loss(const real* z, int z_row, int y, real tau, real scale, real* h, int row) {
    const real own = z[y * z_row];
    real shift = 0, mass = 0, wrong = 0;
    for (int j = 0; j < C; j++) {
        const real margin = tau * (z[j * z_row] - own);
        shift = margin > shift ? margin : shift;
    }
    for (int j = 0; j < C; j++) {
        const real e = j == y ? 0 : exponential(tau * (z[j * z_row] - own) - shift);
        h[j * row] = e;
        mass += e;  // summed up, never 1 - p_y: p_y is one to all digits
    }
    const real factor = tau * scale / (exponential(-shift) + mass);
    for (int j = 0; j < C; j++) wrong += h[j * row] *= factor;
    h[y * row] = -wrong;
#if DOUBLE
    return scale * (shift + log1p(expm1(-shift) + mass));
#else
    return scale * (shift + log1pf(expm1f(-shift) + mass));
#endif
}

// The same in float32, rounded as PyTorch rounds it: intrinsics keep the compiler from fusing anything else
__device__ real official_loss(const real* z, int z_row, int y, real tau, real scale, bool warp, real* h, int row) {
    const float tau32 = (float)tau, scale32 = (float)scale;
    float top = -3.4e38f;
    for (int j = 0; j < C; j++) top = fmaxf(top, __fmul_rn(tau32, (float)z[j * z_row]));
    auto e = [&](int j) { return expf(__fsub_rn(__fmul_rn(tau32, (float)z[j * z_row]), top)); };
    int lanes = 1;
    while (warp && lanes < C && lanes < 32) lanes *= 2;
    for (int j = 0; j < C; j++) {
        real& sum = h[j % lanes * row];
        sum = j < lanes ? e(j) : __fadd_rn((float)sum, e(j));
    }
    int filled = lanes < C ? lanes : C;
    while (lanes > 1) {
        lanes /= 2;
        for (int j = lanes; j < filled; j++)
            h[(j - lanes) * row] = __fadd_rn((float)h[(j - lanes) * row], (float)h[j * row]);
        filled = filled < lanes ? filled : lanes;
    }
    const float total = (float)h[0], right = __fdiv_rn(e(y), total), offset = __fadd_rn(right, 1e-12f);
    const float g = __fdiv_rn(-scale32, offset), weighted = __fmul_rn(g, right);
    for (int j = 0; j < C; j++) {
        const float p = __fdiv_rn(e(j), total);
        const float d = warp ? __fmaf_rn(-p, weighted, j == y ? weighted : 0.f)
                             : __fmul_rn(__fsub_rn(j == y ? g : 0.f, weighted), p);
        h[j * row] = __fmul_rn(tau32, d);
    }
    return -scale32 * logf(offset);
}

extern "C" __global__ void __launch_bounds__(THREADS)
a2lp_imprint(const real* all_pieces, const real* all_vectors, const long long* all_codes, const real* rates,
             real* all_weights, real* all_losses, const Params p) {
    extern __shared__ double memory[];
    const long long task = blockIdx.x;
    const long long* codes = all_codes + task * N;
    const real* vectors = all_vectors + task * N * D;
    real *weights = all_weights + task * C * D, *losses = all_losses + task * p.steps;
    Descent t;
    Moments moments;
    t.parts = divide(t, memory);
    real* lengths = t.parts + SLICES * C * NODES;  // N: |x|^2
    real* loss = lengths + N;                      // N
    begin(t, moments, all_pieces + task * COLUMNS * ROW * 4, vectors, weights);
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        double sum = 0;
        for (int j = 0; j < D; j++) sum += (double)vectors[i * D + j] * vectors[i * D + j];
        lengths[i] = (real)sum;
    }
    for (int step = 0; step < p.steps; step++) {
        const real rate = rates[2 * step], correction = rates[2 * step + 1];
        multiply_nodes(t);
        for (int i = threadIdx.x; i < N; i += blockDim.x) {
            for (int q = 0; q < C; q++)
                t.products[q * NODES + i] -= (real)0.5 * (lengths[i] + t.products[q * NODES + N + q]);
            const real* z = t.products + i;
            real* h = t.slopes + i;
            const int y = (int)codes[i];
            loss[i] = p.numerics == EXACT
                          ? exact_loss(z, NODES, y, p.tau, p.scale, h, SLOPE_ROW)
                          : official_loss(z, NODES, y, p.tau, p.scale, p.numerics == OFFICIAL, h, SLOPE_ROW);
        }
        __syncthreads();
        sum_nodes(
            t, 0, N, [&](int q, int i) { return t.slopes[q * SLOPE_ROW + i]; },
            [&](int q, real sum) {
                for (int k = 0; k < C; k++) t.slopes[q * SLOPE_ROW + N + k] = k == q ? -sum : 0;
            });
        if (threadIdx.x == blockDim.x - 1) {  // its thread has the least to do
            real sum = 0;
            for (int i = 0; i < N; i++) sum += loss[i];
            losses[step] = sum;
        }
        descend(t, moments, p.adam, rate, correction);
    }
    store_weights(t, weights);
}
