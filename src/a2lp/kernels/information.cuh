// Mutual information of points and classes: probabilities from logits, and the gradient of TIM's losses by the logits.
// After descent.cuh; logits, probabilities and gradients are (C, a row's length), points from S on are queries.

struct Objective {
    real support, marginal, conditional, order;
};

// Softmax over the classes of N points' logits: probabilities, and logits become their logarithms
__device__ void softmax(real* logits, int row, real* probabilities) {
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        real top = logits[i], total = 0;
        for (int q = 1; q < C; q++) top = logits[q * row + i] > top ? logits[q * row + i] : top;
        for (int q = 0; q < C; q++) {
            const real e = exponential(logits[q * row + i] - top);
            probabilities[q * N + i] = e;
            total += e;
        }
        const real shift = top + logarithm(total);
        for (int q = 0; q < C; q++) {
            probabilities[q * N + i] /= total;
            logits[q * row + i] -= shift;
        }
    }
    __syncthreads();
}

// Minus the slope of the entropy, up to a constant: log p, or order / (order - 1) p^(order - 1)
__device__ real entropy_slope(real log_p, real order) {
    return order == 1 ? log_p : order / (order - 1) * exponential((order - 1) * log_p);
}

// Gradient by the logits, times `factor`, from probabilities and their logarithms; marginal takes C numbers
__device__ void information_gradient(const Descent& t, const real* probabilities, const real* logs, int log_row,
                                     const long long* codes, int s, real factor, const Objective& objective,
                                     real* marginal, real* gradient, int row) {
    const real share = (real)1 / (N - s), scale = factor * objective.support / s;
    sum_nodes(
        t, s, N, [&](int q, int i) { return probabilities[q * N + i]; },
        [&](int q, real mass) {
            const real mean = mass * share, least = (real)1e-30;  // all probabilities of a class may be zero
            marginal[q] = objective.marginal * entropy_slope(logarithm(mean > least ? mean : least), objective.order);
        });
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        real average = 0;
        for (int q = 0; q < C; q++) {
            const real p = probabilities[q * N + i];
            if (i < s) {
                // 1 - p_y is a sum of its parts, since p_y is near one
                const bool wrong = q != (int)codes[i];
                gradient[q * row + i] = wrong ? scale * p : 0;
                average += wrong ? scale * p : 0;
            } else {
                const real u = marginal[q] - objective.conditional * entropy_slope(logs[q * log_row + i], objective.order);
                gradient[q * row + i] = u;
                average += p * u;
            }
        }
        if (i < s) gradient[codes[i] * row + i] = -average;
        for (int q = 0; q < C && i >= s; q++)
            gradient[q * row + i] = factor * share * probabilities[q * N + i] * (gradient[q * row + i] - average);
    }
    __syncthreads();
}
