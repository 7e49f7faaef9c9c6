// One thread block runs all steps of one task. Compiled for its sizes: S anchors, M other points, N = S + M, C classes,
// K neighbours, DP dimensions (padded), GAMMA3 whether the power is 3, BLOCKS of a multiprocessor.
//
// A step has two halves. The wide half streams the points that never move through shared memory once and does with
// each piece everything that needs it: the gradient of the anchors, their Adam step, and their new similarities. Each
// warp has dimensions of its own, 8 at a time, and waits for no other. The narrow half is the chain of small things on
// N points: thresholds, graph, Cholesky factor, solutions, loss, adjoint. Points are ordered rest first, anchors last,
// so that labels and the gradient of the loss are zero in all but the last rows, and one backward substitution serves
// both right-hand sides.

#define NB ((S + AB - 1) / AB)
#define AB 5                  // anchors at a time
#define WARPS 8
#define TPB (WARPS * 32)
#define CW 8                  // dimensions of a warp's piece: two quads
#define PIECE (M * CW)        // floats of a piece
#define PIECES (DP / CW)
#define LD (N | 1)            // odd: columns of the system do not share banks
#define SLOTS (AB * CW)       // moments of a piece and a block of anchors
#define VD (DP + 4)
#define XC ((2 * C) | 1)
#define SCRATCH ((N * LD + 3) / 4 * 4)
#define TOGETHER (SCRATCH / (S * N) < WARPS ? SCRATCH / (S * N) : WARPS)  // warps whose sums fit the scratch at a time
#define FULL 0xffffffffu
#define NO_CUT 0x7fffffff
#define SLACK 9.5367431640625e-07f  // 8 roundings

struct Params {
    float alpha, gamma, tau, scale, lr, beta1, beta2, eps, loss_tol;
    int steps, updates, loss, adam;
};

__device__ __forceinline__ void copy16(float* to, const float* from) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int left> __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(left)); }

__device__ __forceinline__ void load_piece(float* piece, const float* from) {
    for (int e = threadIdx.x % 32; e < PIECE / 4; e += 32) copy16(piece + 4 * e, from + 4 * e);
    commit();
}
// where quad q of row j stands in a piece: rows 4 apart swap theirs, so that 8 rows read at once share no bank
__device__ __forceinline__ int quad_at(int j, int q) { return j * CW + 4 * (q ^ ((j >> 2) & 1)); }

__device__ __forceinline__ float power(float x, float gamma) {
#if GAMMA3
    return x * x * x;
#else
    return x > 0.f ? powf(x, gamma) : 0.f;
#endif
}
__device__ __forceinline__ float slope(float x, float gamma) {
#if GAMMA3
    return 3.f * x * x;
#else
    return x > 0.f ? gamma * powf(x, gamma - 1.f) : 0.f;
#endif
}

// a point's place in the caller's order, support first: of equal similarities the lower are chosen
__device__ __forceinline__ int place(int j) { return j < M ? S + j : j - M; }
// thresholds are the lower end of what counts as equal to the K-th similarity; this is the upper
__device__ __forceinline__ float upper(float threshold) { return threshold * (1.f + 2.f * SLACK); }

__device__ __forceinline__ bool chosen(float sim, int row, int j, const float* threshold, const int* cut) {
    return sim > upper(threshold[row]) || (sim >= threshold[row] && place(j) <= cut[row]);
}

// 1 / sqrt(x) to the last digit or so: the fast instruction, and one Newton step
__device__ __forceinline__ float inverse_root(float x) {
    float y = rsqrtf(x);
    return y * (1.5f - 0.5f * x * y * y);
}
__device__ __forceinline__ float root(float x) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(FULL, x, o);
    return x;
}

// ---- losses: rows of Z of the anchors in, value and dL/dZ out; nothing else knows which loss it is ------------------

__device__ float loss_exact(const float* z, int y, float tau, float scale, float* h) {
    float shift = 0.f;
    for (int j = 0; j < C; j++) shift = fmaxf(shift, tau * (z[j] - z[y]));
    float mass = 0.f;
    for (int j = 0; j < C; j++) {
        h[j] = j == y ? 0.f : expf(tau * (z[j] - z[y]) - shift);
        mass += h[j];  // summed up, never 1 - p_y: p_y is one to all digits
    }
    float factor = tau * scale / (expf(-shift) + mass), wrong = 0.f;
    for (int j = 0; j < C; j++) {
        h[j] *= factor;
        wrong += h[j];
    }
    h[y] = -wrong;
    return scale * (shift + log1pf(expm1f(-shift) + mass));
}

// float32 as PyTorch's own kernels round it; intrinsics keep the compiler from fusing anything else
__device__ float loss_official(const float* z, int y, float tau, float scale, bool warp, float* h) {
    float top = -3.4e38f;
    for (int j = 0; j < C; j++) top = fmaxf(top, __fmul_rn(tau, z[j]));
    int lanes = 1;
    while (warp && lanes < C && lanes < 32) lanes *= 2;
    for (int j = 0; j < C; j++) {
        float e = expf(__fsub_rn(__fmul_rn(tau, z[j]), top));
        h[j % lanes] = j < lanes ? e : __fadd_rn(h[j % lanes], e);
    }
    int filled = min(lanes, C);
    while (lanes > 1) {
        lanes /= 2;
        for (int j = lanes; j < filled; j++) h[j - lanes] = __fadd_rn(h[j - lanes], h[j]);
        filled = min(filled, lanes);
    }
    float total = h[0];
    float right = __fdiv_rn(expf(__fsub_rn(__fmul_rn(tau, z[y]), top)), total);
    float g = __fdiv_rn(-scale, __fadd_rn(right, 1e-12f));
    float weighted = __fmul_rn(g, right);
    for (int j = 0; j < C; j++) {
        float p = __fdiv_rn(expf(__fsub_rn(__fmul_rn(tau, z[j]), top)), total);
        float d = warp ? __fmaf_rn(-p, weighted, j == y ? weighted : 0.f)
                       : __fmul_rn(__fsub_rn(j == y ? g : 0.f, weighted), p);
        h[j] = __fmul_rn(tau, d);
    }
    return -scale * logf(__fadd_rn(right, 1e-12f));
}

// ---- the wide half --------------------------------------------------------------------------------------------------

struct Moment {
    float mean, square;
};

__device__ __forceinline__ float adam(float g, Moment& m, float rate, float correction, const Params& p) {
    if (!p.adam) return p.lr * g;
    m.mean = p.beta1 * m.mean + (1.f - p.beta1) * g;
    m.square = p.beta2 * m.square + (1.f - p.beta2) * g * g;
    float denominator = root(m.square) * correction + p.eps;
    return denominator > 0.f ? __fdividef(rate * m.mean, denominator) : 0.f;
}

// Sum over the 16 lanes of one parity, scattered: a lane ends with anchor 2 b2 + b1 (b2, b1: bits 2 and 1 of its
// number) of dimension 2 b4 + b3 of its quad in `own`, and with anchor 4 of that dimension in `fifth`.
__device__ __forceinline__ void reduce(const float4 (&sum)[AB], int lane, float& own, float& fifth) {
    const bool b4 = lane & 16, b3 = lane & 8, b2 = lane & 4, b1 = lane & 2;
    float g[AB];
#pragma unroll
    for (int a = 0; a < AB; a++) {
        float x = (b4 ? sum[a].z : sum[a].x) + __shfl_xor_sync(FULL, b4 ? sum[a].x : sum[a].z, 16);
        float y = (b4 ? sum[a].w : sum[a].y) + __shfl_xor_sync(FULL, b4 ? sum[a].y : sum[a].w, 16);
        g[a] = (b3 ? y : x) + __shfl_xor_sync(FULL, b3 ? x : y, 8);
    }
    float k0 = (b2 ? g[2] : g[0]) + __shfl_xor_sync(FULL, b2 ? g[0] : g[2], 4);
    float k1 = (b2 ? g[3] : g[1]) + __shfl_xor_sync(FULL, b2 ? g[1] : g[3], 4);
    own = (b1 ? k1 : k0) + __shfl_xor_sync(FULL, b1 ? k0 : k1, 2);
    fifth = g[4] + __shfl_xor_sync(FULL, g[4], 4);
    fifth += __shfl_xor_sync(FULL, fifth, 2);
}

// Gradient and Adam step (unless this is the first pass), then similarities of anchors to all points into simA.
__device__ void sweep(bool update, const float* rest, float* pieces, float* V, const float* coefficient, float* scratch,
                      float* simA, Moment* moments, float rate, float correction, int& buffer, const Params& p) {
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int q1 = lane & 1, group = lane >> 1;                 // of the gradient: a quad, and every 16th row
    const int dim = 4 * q1 + ((lane >> 4) & 1) * 2 + ((lane >> 3) & 1), a1 = ((lane >> 2) & 1) * 2 + ((lane >> 1) & 1);
    constexpr int ROWS1 = (N + 15) / 16, ROWS2 = (N + 31) / 32;
    float acc[ROWS2][NB * AB];
#pragma unroll
    for (int r = 0; r < ROWS2; r++)
#pragma unroll
        for (int a = 0; a < NB * AB; a++) acc[r][a] = 0.f;
    const Moment* start = moments + (size_t)warp * NB * SLOTS;
    Moment own = start[lane], fifth = start[32 + dim];
#pragma unroll 1
    for (int u = 0; u < PIECES / WARPS; u++) {
        const int t = u * WARPS + warp, column = t * CW, t_next = (u + 1) % (PIECES / WARPS) * WARPS + warp;
        const float* piece = pieces + buffer * PIECE;
        buffer ^= 1;
        wait<0>();
        __syncwarp();  // the piece is here, and no lane reads the other one any more
        load_piece(pieces + buffer * PIECE, rest + (size_t)t_next * PIECE);  // the last loads the first for the next step
        if (update) {
            float4 x[ROWS1];
#pragma unroll
            for (int r = 0; r < ROWS1; r++) {
                const int j = min(group + 16 * r, N - 1);
                x[r] = *(const float4*)(j < M ? piece + quad_at(j, q1) : V + (j - M) * VD + column + 4 * q1);
            }
            __syncwarp();  // all have read the old anchors
#pragma unroll 1  // code that does not fit the instruction cache costs more than a loop
            for (int b = 0; b < NB; b++) {
                float4 sum[AB];
#pragma unroll
                for (int a = 0; a < AB; a++) sum[a] = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
                for (int r = 0; r < ROWS1; r++) {
                    const int j = group + 16 * r;
                    if (16 * r + 15 >= N && j >= N) break;
                    const float4 k4 = *(const float4*)(coefficient + (b * N + j) * 4);
                    const float f[AB] = {k4.x, k4.y, k4.z, k4.w, coefficient[NB * N * 4 + b * N + j]};
#pragma unroll
                    for (int a = 0; a < AB; a++) {
                        sum[a].x += f[a] * x[r].x;
                        sum[a].y += f[a] * x[r].y;
                        sum[a].z += f[a] * x[r].z;
                        sum[a].w += f[a] * x[r].w;
                    }
                }
                float g, g5;
                reduce(sum, lane, g, g5);
                // the moments of this element were read an element ahead
                Moment* at = moments + (size_t)(t * NB + b) * SLOTS;
                const Moment* next = b + 1 < NB ? at + SLOTS : moments + (size_t)t_next * NB * SLOTS;
                const Moment own_next = next[lane], fifth_next = next[32 + dim];
                V[(b * AB + a1) * VD + column + dim] -= adam(g, own, rate, correction, p);
                at[lane] = own;
                if (a1 == 0) {
                    V[(b * AB + 4) * VD + column + dim] -= adam(g5, fifth, rate, correction, p);
                    at[32 + dim] = fifth;
                }
                own = own_next, fifth = fifth_next;
            }
            __syncwarp();
        }
#pragma unroll 1
        for (int q = 0; q < CW / 4; q++) {
            float4 x[ROWS2];
#pragma unroll
            for (int r = 0; r < ROWS2; r++) {
                const int j = min(lane + 32 * r, N - 1);
                x[r] = *(const float4*)(j < M ? piece + quad_at(j, q) : V + (j - M) * VD + column + 4 * q);
            }
#pragma unroll
            for (int a = 0; a < NB * AB; a++) {
                const float4 v = *(const float4*)(V + a * VD + column + 4 * q);
#pragma unroll
                for (int r = 0; r < ROWS2; r++)
                    acc[r][a] = fmaf(v.w, x[r].w, fmaf(v.z, x[r].z, fmaf(v.y, x[r].y, fmaf(v.x, x[r].x, acc[r][a]))));
            }
        }
    }
    // the warps' sums, as many at a time as the scratch holds, in an order that does not change
    for (int w0 = 0; w0 < WARPS; w0 += TOGETHER) {
        if (w0) __syncthreads();
        if (warp >= w0 && warp < w0 + TOGETHER)
#pragma unroll
            for (int r = 0; r < ROWS2; r++)
#pragma unroll
                for (int a = 0; a < S; a++)
                    if (lane + 32 * r < N) scratch[((warp - w0) * S + a) * N + lane + 32 * r] = acc[r][a];
        __syncthreads();
        for (int e = tid; e < S * N; e += TPB) {
            float sum = w0 ? simA[e] : 0.f;
#pragma unroll
            for (int w = 0; w < TOGETHER; w++)
                if (w0 + w < WARPS) sum += scratch[w * S * N + e];
            if (w0 + TOGETHER >= WARPS) sum = e % N == M + e / N ? -1.f : fmaxf(sum, 0.f);
            simA[e] = sum;
        }
    }
    __syncthreads();
}

// ---- the narrow half ------------------------------------------------------------------------------------------------

// How far row i lets in what equals its K-th similarity: the place of the last one chosen.
__device__ __noinline__ int tie_cut(int i, float t, const float* simA, int of_rest, int n, const float* row, int* ties) {
    int room = K;
    *ties = 1;
    auto sim = [&](int j) {
        return of_rest ? (j < M ? row[j] : simA[(j - M) * n + i]) : row[j];
    };
    for (int j = 0; j < N; j++) room -= sim(j) > upper(t);
    for (int o = 0; o < N; o++) {
        const int j = o < S ? M + o : o - S;
        const float x = sim(j);
        if (x >= t && x <= upper(t) && --room == 0) return o;
    }
    return NO_CUT;
}

// Each row's K-th largest similarity, less what counts as equal, and how far equal ones are let in.
__device__ __noinline__ void thresholds(const float* simA, const float* rr, const float* best, const float* beyond, float* threshold,
                           int* cut, int* ties) {
    const int tid = threadIdx.x, lane = tid % 32;
    for (int i = tid; i < M; i += TPB) {
        // merge the sorted list of K with the anchors, largest anchor first
        float last = best[(K - 1) * M + i], t = last, previous = 3.4e38f;
        int taken = 0;
        bool more = true;
        while (more && taken < K) {
            float top = -1.f;
            int same = 0;
            for (int a = 0; a < S; a++) {
                float x = simA[a * N + i];
                if (x < previous && x > top) top = x, same = 1;
                else if (x == top) same++;
            }
            more = false;
            for (; same > 0 && taken < K && top > best[(K - 1 - taken) * M + i]; same--) {
                taken++;
                t = top;
                more = same == 1;
            }
            previous = top;
        }
        if (taken > 0 && taken < K) t = fminf(t, best[(K - 1 - taken) * M + i]);
        t *= 1.f - SLACK;
        threshold[i] = t;
        cut[i] = NO_CUT;
        int reach = 0;
        for (int k = 0; k < K; k++) reach += best[k * M + i] >= t;
        for (int a = 0; a < S; a++) reach += simA[a * N + i] >= t;
        if (t > 0.f && (reach > K || beyond[i] >= t)) cut[i] = tie_cut(i, t, simA, 1, N, rr + i * M, ties);
    }
    // rows of anchors: a warp to a row, or to two at a time, by bisection over the bits; warps with rows above have none
    constexpr int BUSY = (M + 31) / 32 < WARPS ? (M + 31) / 32 : 0, FREE = WARPS - BUSY, AT_ONCE = S > FREE ? 2 : 1;
    constexpr int WIDE = (N + 31) / 32;
    if (tid / 32 >= BUSY)
        for (int first = tid / 32 - BUSY; first < S; first += FREE * AT_ONCE) {
            int bits[AT_ONCE][WIDE], lo[AT_ONCE];
#pragma unroll
            for (int o = 0; o < AT_ONCE; o++) {
                lo[o] = 0;
#pragma unroll
                for (int r = 0; r < WIDE; r++) {  // non-negative floats are ordered as integers
                    const int j = r * 32 + lane;
                    bits[o][r] = j < N ? __float_as_int(simA[min(first + o * FREE, S - 1) * N + j]) : -1;
                }
            }
            for (int bit = 30; bit >= 0; bit--)
#pragma unroll
                for (int o = 0; o < AT_ONCE; o++) {
                    const int candidate = lo[o] | (1 << bit);
                    int count = 0;
#pragma unroll
                    for (int r = 0; r < WIDE; r++) count += __popc(__ballot_sync(FULL, bits[o][r] >= candidate));
                    if (count >= K) lo[o] = candidate;
                }
#pragma unroll
            for (int o = 0; o < AT_ONCE; o++) {
                const int a = first + o * FREE;
                if (a >= S) break;
                const float t = __int_as_float(lo[o]) * (1.f - SLACK);
                int reach = 0;
#pragma unroll
                for (int r = 0; r < WIDE; r++) reach += __popc(__ballot_sync(FULL, bits[o][r] >= __float_as_int(t)));
                if (lane == 0) {
                    threshold[M + a] = t;
                    cut[M + a] = t > 0.f && reach > K ? tie_cut(M + a, t, simA, 0, N, simA + a * N, ties) : NO_CUT;
                }
            }
        }
    __syncthreads();
}

// The system I - alpha S of eq. 5 (lower triangle, zeros above), and the degrees.
template <bool TIES>
__device__ void build(const float* simA, const float* rr, const float* threshold, const int* cut, float* U, float* degree,
                      float* scale, const Params& p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    constexpr int WIDE = (N + 31) / 32, ROUNDS = (N + WARPS - 1) / WARPS;
    float weight[ROUNDS][WIDE], theirs[WIDE];
#pragma unroll
    for (int o = 0; o < ROUNDS; o++)  // all reads of global memory first: their latency is then paid once
#pragma unroll
        for (int r = 0; r < WIDE; r++) {
            const int i = warp + o * WARPS, j = lane + 32 * r;
            weight[o][r] = i < M && j < M ? __ldg(rr + i * M + j) : -1.f;
        }
#pragma unroll
    for (int r = 0; r < WIDE; r++) theirs[r] = threshold[min(lane + 32 * r, N - 1)];
#pragma unroll
    for (int o = 0; o < ROUNDS; o++) {
        const int i = warp + o * WARPS;
        if (i >= N) break;
        const float mine = threshold[i];
        float total = 0.f;
#pragma unroll
        for (int r = 0; r < WIDE; r++) {
            const int j = lane + 32 * r;
            float sim = weight[o][r];
            if (j < N && (i >= M || j >= M)) sim = i >= M ? simA[(i - M) * N + j] : simA[(j - M) * N + i];
            bool forth = sim >= mine, back = sim >= theirs[r];
            if (TIES && j < N) forth = chosen(sim, i, j, threshold, cut), back = chosen(sim, j, i, threshold, cut);
            // a point is no neighbour of its own: its similarity is -1, below every threshold
            weight[o][r] = ((forth ? 0.5f : 0.f) + (back ? 0.5f : 0.f)) * power(fmaxf(sim, 0.f), p.gamma);
            total += weight[o][r];
        }
        total = warp_sum(total) + 1e-12f;
        if (lane == 0) degree[i] = total, scale[i] = inverse_root(total);
    }
    __syncthreads();
    float others[WIDE];
#pragma unroll
    for (int r = 0; r < WIDE; r++) others[r] = scale[min(lane + 32 * r, N - 1)];
#pragma unroll
    for (int o = 0; o < ROUNDS; o++) {
        const int i = warp + o * WARPS;
        if (i >= N) break;
        const float f = -p.alpha * scale[i];
#pragma unroll
        for (int r = 0; r < WIDE; r++) {
            const int j = lane + 32 * r;
            if (j < N) U[i * LD + j] = j < i ? f * others[r] * weight[o][r] : (float)(i == j);
        }
    }
    __syncthreads();
}

// Factor the 16 x 16 block at k0 by one warp, a row to a lane.
__device__ void factor_block(float* U, float* inverse, int k0) {
    const int lane = threadIdx.x % 32, r = lane & 15, i = k0 + r;
    float a[16];
#pragma unroll
    for (int c = 0; c < 16; c++) a[c] = i < N && c <= r ? U[i * LD + k0 + c] : (float)(c == r);
#pragma unroll
    for (int c = 0; c < 16; c++) {
        float pivot = rsqrtf(__shfl_sync(FULL, a[c], c));
        a[c] *= pivot;
        if (lane == c && i < N) inverse[i] = pivot;
#pragma unroll
        for (int q = c + 1; q < 16; q++) {
            float other = __shfl_sync(FULL, a[c], q);
            if (r >= q) a[q] -= a[c] * other;
        }
    }
    if (lane < 16 && i < N)
#pragma unroll
        for (int c = 0; c < 16; c++)
            if (c <= r) U[i * LD + k0 + c] = a[c];
}

// Cholesky factor in place (lower), 16 columns at a time; inverse holds the reciprocals of its diagonal. While one
// warp factors a block of the diagonal, the others bring what is right of and below it up to date.
__device__ void factor(float* U, float* inverse) {
    const int tid = threadIdx.x;
#pragma unroll 1
    for (int k0 = 0; k0 < N; k0 += 16) {
        if (k0 > 0) {  // the block of the diagonal first, an element to a thread
            const int r = tid / 16, c = tid % 16;
            if (c <= r && r < 16 && k0 + r < N) {
                const float *x = U + (k0 + r) * LD + k0 - 16, *y = U + (k0 + c) * LD + k0 - 16;
                float sum = 0.f;
#pragma unroll
                for (int q = 0; q < 16; q++) sum += x[q] * y[q];
                U[(k0 + r) * LD + k0 + c] -= sum;
            }
            __syncthreads();
        }
        if (tid < 32) {
            factor_block(U, inverse, k0);
        } else if (k0 > 0) {
            const int tiles = (N - k0 + 3) / 4;
            for (int e = 10 + tid - 32; e < tiles * (tiles + 1) / 2; e += TPB - 32) {  // 10 tiles are the block itself
                int ti = (int)((sqrtf(8.f * e + 1.f) - 1.f) * 0.5f);
                while ((ti + 1) * (ti + 2) / 2 <= e) ti++;
                while (ti * (ti + 1) / 2 > e) ti--;
                const int tj = e - ti * (ti + 1) / 2, i0 = k0 + 4 * ti, j0 = k0 + 4 * tj;
                const float *left[4], *right[4];
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    left[r] = U + min(i0 + r, N - 1) * LD + k0 - 16;
                    right[r] = U + min(j0 + r, N - 1) * LD + k0 - 16;
                }
                float sum[4][4] = {};
#pragma unroll 4
                for (int c = 0; c < 16; c++) {
                    float x[4], y[4];
#pragma unroll
                    for (int r = 0; r < 4; r++) x[r] = left[r][c], y[r] = right[r][c];
#pragma unroll
                    for (int r = 0; r < 4; r++)
#pragma unroll
                        for (int q = 0; q < 4; q++) sum[r][q] += x[r] * y[q];
                }
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        if (i0 + r < N && j0 + q <= i0 + r) U[(i0 + r) * LD + j0 + q] -= sum[r][q];
            }
        }
        __syncthreads();
        const int first = k0 + 16;
        for (int i = first + tid; i < N; i += TPB) {
            float x[16];
#pragma unroll
            for (int c = 0; c < 16; c++) x[c] = U[i * LD + k0 + c];
#pragma unroll
            for (int c = 0; c < 16; c++) {
                x[c] *= inverse[k0 + c];
#pragma unroll
                for (int q = c + 1; q < 16; q++) x[q] -= x[c] * U[(k0 + q) * LD + k0 + c];
            }
#pragma unroll
            for (int c = 0; c < 16; c++) U[i * LD + k0 + c] = x[c];
        }
        __syncthreads();
    }
}

// Both substitutions in the anchors' rows: right-hand sides given(a, q) into columns `column` of X; a warp to a class.
template <class Given>
__device__ void solve_anchors(const float* U, const float* inverse, float* X, int column, Given given) {
    const int lane = threadIdx.x % 32;
    constexpr int R = (S + 31) / 32;
    for (int q = threadIdx.x / 32; q < C; q += WARPS) {
        float x[R];
#pragma unroll
        for (int i = 0; i < R; i++) x[i] = lane + 32 * i < S ? given(lane + 32 * i, q) : 0.f;
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll 5
            for (int k = 32 * i; k < min(32 * i + 32, S); k++) {
                float value = __shfl_sync(FULL, x[i], k & 31) * inverse[M + k];
                if (lane == (k & 31)) x[i] = value;
#pragma unroll
                for (int r = i; r < R; r++) {
                    int row = lane + 32 * r;
                    if (row > k && row < S) x[r] -= U[(M + row) * LD + M + k] * value;
                }
            }
#pragma unroll
        for (int i = R - 1; i >= 0; i--)
#pragma unroll 5
            for (int k = min(32 * i + 32, S) - 1; k >= 32 * i; k--) {
                float value = __shfl_sync(FULL, x[i], k & 31) * inverse[M + k];
                if (lane == (k & 31)) x[i] = value;
#pragma unroll
                for (int r = 0; r <= i; r++) {
                    int row = lane + 32 * r;
                    if (row < k) x[r] -= U[(M + k) * LD + M + row] * value;
                }
            }
#pragma unroll
        for (int i = 0; i < R; i++)
            if (lane + 32 * i < S) X[(M + lane + 32 * i) * XC + column + q] = x[i];
    }
    __syncthreads();
}

// Backward substitution in the other rows, whose right-hand side is zero; two columns to a warp.
__device__ __noinline__ void solve_rest(const float* U, const float* inverse, float* X, int columns) {
    const int lane = threadIdx.x % 32;
    constexpr int R = (M + 31) / 32;
    for (int q = 2 * (threadIdx.x / 32); q < columns; q += 2 * WARPS) {
        const int q2 = min(q + 1, columns - 1);
        float x[R], y[R];
#pragma unroll
        for (int i = 0; i < R; i++) x[i] = y[i] = 0.f;
#pragma unroll 5
        for (int k = N - 1; k >= M; k--) {
            const float value = X[k * XC + q], second = X[k * XC + q2];
#pragma unroll
            for (int r = 0; r < R; r++) {
                const float u = U[k * LD + min(lane + 32 * r, M - 1)];
                x[r] -= u * value, y[r] -= u * second;
            }
        }
#pragma unroll
        for (int i = R - 1; i >= 0; i--)
#pragma unroll 1
            for (int k1 = (32 * i + 32 < M ? 32 * i + 32 : M) - 1; k1 >= 32 * i; k1 -= 8) {
                float u[8][R], reciprocal[8];  // read ahead: only the chain of values is sequential
#pragma unroll
                for (int o = 0; o < 8; o++) {
                    const int k = max(k1 - o, 0);
                    reciprocal[o] = inverse[k];
#pragma unroll
                    for (int r = 0; r <= i; r++) u[o][r] = U[k * LD + lane + 32 * r];  // zero right of the diagonal
                }
#pragma unroll
                for (int o = 0; o < 8; o++) {
                    const int k = k1 - o;
                    if (k < 32 * i) break;
                    const float value = __shfl_sync(FULL, x[i], k & 31) * reciprocal[o];
                    const float second = __shfl_sync(FULL, y[i], k & 31) * reciprocal[o];
#pragma unroll
                    for (int r = 0; r <= i; r++) x[r] -= u[o][r] * value, y[r] -= u[o][r] * second;
                    if (lane == (k & 31)) x[i] = value, y[i] = second;
                }
            }
#pragma unroll
        for (int i = 0; i < R; i++)
            if (lane + 32 * i < M) {
                X[(lane + 32 * i) * XC + q] = x[i];
                X[(lane + 32 * i) * XC + q2] = y[i];
            }
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(TPB, BLOCKS)
a2lp(const float* all_rest, const float* all_support, const int* all_codes, const float* all_rr, const float* all_best,
     const float* all_beyond, Moment* all_moments, float* all_z, float* all_anchors, float* all_losses, int* taken,
     int* converged, Params p) {
    extern __shared__ float4 shared4[];
    float* pieces = (float*)shared4;               // WARPS x 2 x PIECE
    float* V = pieces + WARPS * 2 * PIECE;         // NB AB x VD
    float* U = V + NB * AB * VD;                   // N x LD; in the wide half, scratch
    float* coefficient = U + SCRATCH;              // NB x N x 4 for four anchors, then NB x N for the fifth
    float* simA = coefficient + NB * N * AB;       // S x N
    float* X = simA + S * N;                       // N x XC
    float* H = X + N * XC;                         // S x C
    float* best = H + S * C;                       // K x M
    float* threshold = best + K * M;               // N each
    float* degree = threshold + N;
    float* d_degree = degree + N;
    float* scale = d_degree + N;
    float* inverse = scale + N;
    int* cut = (int*)(inverse + N);
    int* codes = cut + N;                          // S
    __shared__ int stop, ties;

    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, task = blockIdx.x;
    const float* rest = all_rest + (size_t)task * M * DP;
    const float* rr = all_rr + (size_t)task * M * M;
    Moment* moments = all_moments + (size_t)task * NB * AB * DP;
    const float* beyond = all_beyond + (size_t)task * M;
    float* losses = all_losses + (size_t)task * p.steps;

    pieces += warp * 2 * PIECE;
    load_piece(pieces, rest + (size_t)warp * PIECE);
    for (int e = tid; e < NB * AB * VD; e += TPB) {
        int a = e / VD, c = e % VD;
        V[e] = a < S && c < DP ? all_support[((size_t)task * S + a) * DP + c] : 0.f;
    }
    for (int e = tid; e < K * M; e += TPB) best[e] = all_best[(size_t)task * K * M + e];
    for (int a = tid; a < S; a += TPB) codes[a] = all_codes[task * S + a];
    for (int e = tid; e < NB * AB * DP; e += TPB) moments[e] = Moment{0.f, 0.f};
    for (int e = tid; e < NB * N * AB; e += TPB) coefficient[e] = 0.f;
    if (tid == 0) ties = 0;
    __syncthreads();
    double power1 = 1.0, power2 = 1.0;
    float rate = 0.f, correction = 0.f;
    int done = p.steps, met = 0, buffer = 0;

    for (int step = 0;; step++) {
        sweep(step > 0, rest, pieces, V, coefficient, U, simA, moments, rate, correction, buffer, p);
        thresholds(simA, rr, best, beyond, threshold, cut, &ties);
        const bool tied = ties;  // rare: equal similarities at a K-th place
        if (tied) build<true>(simA, rr, threshold, cut, U, degree, scale, p);
        else build<false>(simA, rr, threshold, cut, U, degree, scale, p);
        factor(U, inverse);
        solve_anchors(U, inverse, X, 0, [&](int a, int q) { return (float)(codes[a] == q); });
        if (step == p.steps) break;
        if (warp == 0) {
            float total = 0.f;
            for (int a = lane; a < S; a += 32) {
                const float* z = X + (M + a) * XC;
                total += p.loss == 0 ? loss_exact(z, codes[a], p.tau, p.scale, H + a * C)
                                     : loss_official(z, codes[a], p.tau, p.scale, p.loss == 1, H + a * C);
            }
            total = warp_sum(total);
            if (lane == 0) {
                losses[step] = total;
                stop = total <= p.loss_tol;
                ties = 0;
            }
        }
        __syncthreads();
        if (stop) {
            done = step, met = 1;
            for (int later = step + 1 + tid; later < p.steps; later += TPB) losses[later] = losses[step];
            break;
        }
        if (step >= p.updates) break;
        solve_anchors(U, inverse, X, C, [&](int a, int q) { return H[a * C + q]; });
        solve_rest(U, inverse, X, 2 * C);
        for (int i = tid; i < N; i += TPB) {
            float sum = 0.f;
            for (int q = 0; q < C; q++) sum -= X[i * XC + q] * X[i * XC + C + q];
            if (i >= M) {
                float tail = X[i * XC + C + codes[i - M]];
                for (int q = 0; q < C; q++) tail += X[i * XC + q] * H[(i - M) * C + q];
                sum += 0.5f * tail;
            }
            d_degree[i] = __fdividef(sum, degree[i]);
        }
        __syncthreads();
        for (int e = tid; e < S * N; e += TPB) {
            const int a = e / N, j = e % N, i = M + a;
            const float sim = simA[e];
            float pair = 0.f;
            for (int q = 0; q < C; q++) pair += X[i * XC + C + q] * X[j * XC + q] + X[i * XC + q] * X[j * XC + C + q];
            bool forth = sim >= threshold[i], back = sim >= threshold[j];
            if (tied) forth = chosen(sim, i, j, threshold, cut), back = chosen(sim, j, i, threshold, cut);
            float outer = p.alpha * scale[i] * scale[j] * pair + d_degree[i] + d_degree[j];
            float value = ((forth ? 0.5f : 0.f) + (back ? 0.5f : 0.f)) * slope(fmaxf(sim, 0.f), p.gamma) * outer;
            coefficient[a % AB < 4 ? (a / AB * N + j) * 4 + a % AB : NB * N * 4 + a / AB * N + j] = value;
        }
        __syncthreads();
        power1 *= p.beta1;
        power2 *= p.beta2;
        rate = (float)(p.lr / (1.0 - power1));
        correction = (float)(1.0 / sqrt(1.0 - power2));
    }
    wait<0>();
    solve_rest(U, inverse, X, C);
    for (int e = tid; e < N * C; e += TPB) all_z[(size_t)task * N * C + e] = X[(e / C) * XC + e % C];
    for (int e = tid; e < S * DP; e += TPB) all_anchors[(size_t)task * S * DP + e] = V[(e / DP) * VD + e % DP];
    if (tid == 0) taken[task] = done, converged[task] = met;
}
