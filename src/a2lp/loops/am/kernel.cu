// A thread block runs all rounds of one task, whose weights are the centroids. Compiled after system.cuh.

// dL/dZ, its adjoint, and the gradient by the degrees
__device__ void adjoin(const Descent& t, const Manifold& g, const long long* codes, const Params& p) {
    for (int e = thread(); e < C * N; e += blockDim.x) g.logits[e] = p.tau * g.z[e / N * PADDED + e % N];
    for (int e = thread(); e < C * PADDED; e += blockDim.x) g.d_z[e] = 0;
    __syncthreads();
    softmax(g.logits, N, g.probabilities);
    information_gradient(t, g.probabilities, g.logits, N, codes, p.s, p.tau, p.objective, g.marginal, g.d_z, PADDED);
    for (int q = thread() / LANES; q < C; q += WARPS) {
        real *adjoint = g.adjoint + q * PADDED, *half = g.scratch + q * PADDED;
        for (int i = thread() % LANES; i < PADDED; i += LANES) adjoint[i] = g.d_z[q * PADDED + i];
        __syncwarp();
        substitute<true, true>(g, adjoint, half, 0);
        substitute<false, true>(g, half, adjoint, 0);
    }
    __syncthreads();
    for (int i = thread(); i < NODES; i += blockDim.x) {
        real sum = 0;
        for (int q = 0; q < C; q++) {
            const int e = q * PADDED + i;
            sum += g.adjoint[e] * g.z[e] + g.z[e] * (g.adjoint[e] - g.d_z[e]);
        }
        if (i >= N) sum -= g.adjoint[(i - N) * PADDED + i];
        g.d_degree[i] = (real)-0.5 * sum / g.degree[i];
    }
    __syncthreads();
}

// As adam_move, but off by some roundings in float32, which are lost where the move is added to a value near one. Most
// gradients are zero, with which exact roots and ratios take longest.
__device__ __forceinline__ real rough_move(real gradient, real& mean, real& square, const Adam& adam, real rate,
                                           real correction) {
#if DOUBLE
    return adam_move(gradient, mean, square, adam, rate, correction);
#else
    mean = adam.b1 * mean + adam.rest1 * gradient;
    square = adam.b2 * square + adam.rest2 * gradient * gradient;
    const real root = square * rsqrtf(square > 1e-37f ? square : 1e-37f), denominator = root * correction + adam.eps;
    return denominator > 0 ? __fdividef(-rate * mean, denominator) : 0;
#endif
}

__device__ __forceinline__ void adapt(const Adapted& all, int e, const Entry& entry, real gradient, const Adam& adam,
                                      real rate, real correction) {
    Adapted::Moment moment = entry.moment;
    all.values[e] = entry.value + rough_move(gradient, moment.mean, moment.square, adam, rate, correction);
    all.moments[e] = moment;
}

// A step of the edges, then of the scales; slopes of the centroids become dL/d(distance / spread). Returns the thread's
// part of the gradient by the spread, times the spread.
__device__ real adapt_graph(const Descent& t, const Manifold& g, real per_spread, const Params& p, real rate,
                            real correction) {
    real adjoint[C], scale, d_degree;
    const auto begin_edges = [&](int i) {
        scale = p.alpha * g.scale[i], d_degree = g.d_degree[i];
#pragma unroll
        for (int q = 0; q < C; q++) adjoint[q] = g.adjoint[q * PADDED + i];
    };
    const auto adapt_edge = [&](int i, int j, const Entry& edge, int) {
        real pair = 0;
#pragma unroll
        for (int q = 0; q < C; q++) pair += adjoint[q] * g.z[q * PADDED + j];
        const real d_weight = scale * g.scale[j] * pair + d_degree;
        g.system[i * LD + j] = d_weight * edge.value;
        adapt(g.edges, i * NODES + j, edge, d_weight * edge.fixed, p.adam, rate, correction);
    };
    const auto end = [](int) {};
    for_rows<true>(g.edges, NODES, begin_edges, adapt_edge, end);
    __syncthreads();
    real d_spread = 0;
    Chosen chosen;
    const auto begin_scales = [&](int i) { chosen = chosen_of(g, i, p); };
    const auto adapt_scale = [&](int i, int j, const Entry& scale, int) {
        const real far = distance_at(g, i, j, scale) * per_spread, value = affinity(g, i, j, scale, per_spread);
        const real near = j != i && is_in(chosen, value, j) ? value : 0;
        const real d_exponent = (real)-0.5 * (g.system[i * LD + j] + g.system[j * LD + i]) * near;
        const real d_far = d_exponent * scale.value;
        d_spread -= d_far * far;
        if (j >= N) t.slopes[(j - N) * SLOPE_ROW + i] = d_far;
        adapt(g.scales, i * NODES + j, scale, d_exponent * far, p.adam, rate, correction);
    };
    for_rows<true>(g.scales, N, begin_scales, adapt_scale, end);
    return d_spread;
}

// The moments of the centroids are in global memory but for the last part of a step: other parts need the registers.
// use(place in memory, moment) for each of a thread
template <class Use>
__device__ __forceinline__ void for_moments(Moments& moments, Use use) {
#pragma unroll UNROLL
    for (int e = 0; e < SLOTS * C; e++) {
        const int j = thread() + e / C * THREADS;
        if (j >= D) break;
        use(2 * (e % C) * D + j, moments.mean[e]);
        use((2 * (e % C) + 1) * D + j, moments.square[e]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
a2lp_am(const real* all_pieces, const real* all_vectors, const long long* all_codes, const real* rates,
        real* all_weights, real* all_adapted, real* all_z, const Params p) {
    extern __shared__ double memory[];
    const long long task = blockIdx.x;
    const long long* codes = all_codes + task * p.s;
    real* weights = all_weights + task * C * D;
    Descent t;
    Manifold g;
    g.partial = (double*)divide(t, memory);
    g.system = t.parts = (real*)(g.partial + (2 * WARPS + 3) / 4 * 4);  // parts are needed before affinities are
    g.diagonal = g.system + PADDED * LD;
    g.z = g.diagonal + FOURS * 16;
    g.adjoint = g.z + C * PADDED;
    g.d_z = g.adjoint + C * PADDED;
    g.scratch = g.d_z + C * PADDED;
    g.apart = g.scratch + C * PADDED;
    g.logits = g.apart + C * NODES;
    g.probabilities = g.logits + C * N;
    g.marginal = g.probabilities + C * N;
    g.length = g.marginal + C;
    g.threshold = g.length + N;
    g.last = g.threshold + N;
    g.degree = g.last + N;
    g.scale = g.degree + NODES;
    g.d_degree = g.scale + NODES;
    // moments first, which are pairs
    real* adapted = all_adapted + task * (4 * (N + NODES) * NODES + 2 * C * D);
    g.scales.moments = (Adapted::Moment*)adapted;
    g.edges.moments = g.scales.moments + N * NODES;
    g.scales.values = (real*)(g.edges.moments + NODES * NODES);
    g.scales.fixed = g.scales.values + N * NODES;
    g.edges.values = g.scales.fixed + N * NODES;
    g.edges.fixed = g.edges.values + NODES * NODES;
    real* far_moments = g.edges.fixed + NODES * NODES;
    Moments none;
    begin(t, none, all_pieces + task * COLUMNS * ROW * 4, all_vectors + task * N * D, weights);
    for_moments(none, [&](int e, real& zero) { far_moments[e] = zero; });
    begin_manifold(t, g, p);

    double fixed_sum = 0, fixed_squares = 0;
    for (int e = thread(); e < N * NODES; e += blockDim.x) {
        const double value = g.scales.fixed[e];
        fixed_sum += value;
        fixed_squares += value * value;
    }
    block_sums(fixed_sum, fixed_squares, g.partial);

    for (int step = 0;; step++) {
        multiply_nodes(t);
        double total = 0, squares = 0;
        for (int e = thread(); e < C * NODES; e += blockDim.x) {
            const int a = e / NODES, j = e % NODES;
            const real own = t.products[a * NODES + N + a];
            const real other = j < N ? g.length[j] : t.products[(j - N) * NODES + j];
            const real value = j == N + a ? 0 : distance(own, other, t.products[e], p.same);
            g.apart[e] = value;
            const double times = j < N ? 2 : 1;  // each pair is counted in both orders
            total += times * value;
            squares += times * value * value;
        }
        block_sums(total, squares, g.partial);
        total += fixed_sum, squares += fixed_squares;
        const double pairs = (double)NODES * NODES, average = total / pairs;
        const double variance = (squares - total * average) / (pairs - 1);
        const real per_spread = (real)(variance > 1e-30 ? 1 / sqrt(variance) : 1);

        compare(g, per_spread, p);
        build(g, p);
        factor(g);
        propagate(g);
        if (step == p.updates) break;
        const real rate = rates[2 * step], correction = rates[2 * step + 1];
        adjoin(t, g, codes, p);
        double pulled = adapt_graph(t, g, per_spread, p, rate, correction), nothing = 0;
        block_sums(pulled, nothing, g.partial);
        Moments moments;
        for_moments(moments, [&](int e, real& moment) { moment = far_moments[e]; });
        const real d_spread = (real)(pulled * per_spread / (pairs - 1));
        for (int e = thread(); e < C * NODES; e += blockDim.x) {
            const int a = e / NODES, j = e % NODES;
            real& pull = t.slopes[a * SLOPE_ROW + j];
            const real away = g.apart[e];
            const real slope = per_spread * ((j < N ? pull : 0) + 2 * d_spread * (away - (real)average));
            pull = away > 0 ? -slope / away : 0;
        }
        __syncthreads();
        sum_nodes(
            t, 0, NODES, [&](int q, int i) { return t.slopes[q * SLOPE_ROW + i]; },
            [&](int q, real sum) { t.slopes[q * SLOPE_ROW + N + q] = -sum; });
        descend(t, moments, p.adam, rate, correction);
        for_moments(moments, [&](int e, real& moment) { far_moments[e] = moment; });
    }
    for (int e = thread(); e < N * C; e += blockDim.x)
        all_z[task * N * C + e] = g.z[e % C * PADDED + e / C];
    store_weights(t, weights);
}
