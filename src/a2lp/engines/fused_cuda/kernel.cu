// A thread block runs the steps of one task; where there are more tasks than blocks, some steps of one and then some of
// another, so that all blocks end together. Compiled for its sizes: S anchors, M other points, N = S + M, C classes,
// K neighbours, DP dimensions (padded), GAMMA3 whether the power is 3, QUERIES which terms the loss has on other points (0
// none, 1 of squared shares, 2 of a softmax), CORRECTED whether solutions are corrected from step to step or the system is
// factored in each, BLOCKS of a multiprocessor, WARPS of a block.
//
// A step has two halves. The wide half streams the points that never move through shared memory once and does with
// each piece everything that needs it: the gradient of the anchors, their Adam step, and their new similarities. Each
// warp has dimensions of its own, 8 at a time, and waits for no other. The narrow half is the chain of small things on
// N points: thresholds, graph, system, solutions, loss, adjoint. Points are ordered rest first, anchors last,
// so that labels and the gradient of the loss are zero in all but the last rows, and one backward substitution serves
// both right-hand sides.
//
// The products of the wide half are made by the tensor cores, to the precision of float32: a number is the sum of two
// in half precision, high and low, 22 bits in all, and a product that of high by high, high by low and low by high,
// which leaves out less than a float32 product rounds away. Powers of two bring everything into the range of halves.

#define TPB (WARPS * 32)
#define CW 8                  // dimensions of a warp's piece
#define MP ((M + 15) / 16 * 16)
#define SP ((S + 15) / 16 * 16)
#define PIECE (MP * CW)       // floats' room of a piece: high halves (MP, CW), low halves (MP, CW)
#define PIECES (DP / CW)
#define MOMENTS (2 * S * CW)  // floats of a piece's moments: means (S, CW), squares (S, CW)
#define BUFFER (PIECE + MOMENTS)
#define DEPTH (PIECES / WARPS)  // pieces of a warp
#define LD (N | 1)              // odd: columns of the system do not share banks
#define XC ((2 * C) | 1)
#define MS ((M + 3) / 4 * 4)  // from row to row of the similarities of points that stay

// Matrices are multiplied in tiles of 16 anchors by 8. Up to 8 anchors share a tile's 16 rows, high halves above low.
#define STACKED (S <= 8)
#define TILES (STACKED ? 1 : SP / 16)
#define GROUPS ((S + 7) / 8)           // of 8 anchors: what a lane has one of
#define LOW (STACKED ? 8 : SP)         // rows from the coefficients' high halves to their low ones
#define GS (MP + SP + 8)               // from row to row of them; so that 8 rows read at once share no bank
#define FACTORS ((STACKED ? 16 : 2 * SP) * GS / 2)  // floats' room of them all
#define DOWN ((MP + SP) / 16)          // tiles of 16 points, the last of them anchors
#define NS (MP + SP + 8)               // from row to row of a warp's sums

// The system is either factored, or its solutions are corrected from step to step by a rough inverse.
#if CORRECTED
#define NP ((N + 15) / 16 * 16)
#define MATRIX (N * NP / 2)   // floats' room of a matrix of halves
#define SOLUTIONS ((C + 7) / 8 * 8 * NP / 2)  // and of right-hand sides or solutions
#define SYSTEM (2 * MATRIX)   // high halves, then low
#define SCRATCH (SYSTEM - FACTORS)  // the coefficients come when the system is not needed any more
#else
#define SYSTEM (((N * LD > S * NS ? N * LD : S * NS) + 3) / 4 * 4)
#define SCRATCH SYSTEM
#endif
#define TOGETHER (SCRATCH / (S * NS) < WARPS ? SCRATCH / (S * NS) : WARPS)  // warps whose sums fit the scratch at a time
#define FULL 0xffffffffu
#define NO_CUT 0x7fffffff
#define NEAR (K < S + 1 ? K : S + 1)  // so many places of a list of best can the anchors shift
#define SLACK 9.5367431640625e-07f  // 8 roundings

typedef unsigned short half_t;

struct Params {
    float alpha, gamma, tau, scale, entropy, marginal, lr, beta1, beta2, eps, loss_tol;
    int steps, updates, loss, adam, tasks, parts, part;  // part: steps of one
    int doublings;  // of the digits of a rough inverse, from none to enough
};

// What a block is at; in shared memory, since registers are short
struct Job {
    float* pieces;    // of points, with moments behind each
    const float* rr;  // similarities of points (M, MS)
    float* losses;
    float magnify;
    int task, part, first, last;  // first, last: steps
    int stop, ties;               // the loss is small enough; there are equal similarities at a K-th place
};

#include "hardware.cu"

__device__ __forceinline__ float power(float x, float gamma) {
#if GAMMA3
    return x * x * x;
#else
    return x > 0.f ? fast_power(x, gamma) : 0.f;
#endif
}
__device__ __forceinline__ float slope(float x, float gamma) {
#if GAMMA3
    return 3.f * x * x;
#else
    return x > 0.f ? gamma * fast_power(x, gamma - 1.f) : 0.f;
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
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(FULL, x, o);
    return x;
}

// The warp's sums of P values (a power of two, at most 32): lane l gets that of value l / (32 / P).
template <int P>
__device__ __forceinline__ float warp_sums(float* x) {
    int n = P;
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const bool upper_half = threadIdx.x & o;
        n /= 2;
#pragma unroll
        for (int k = 0; k < P / 2; k++) {
            if (k >= n) break;
            const float give = upper_half ? x[k] : x[k + n], keep = upper_half ? x[k + n] : x[k];
            x[k] = keep + __shfl_xor_sync(FULL, give, o);
        }
        if (n == 0) x[0] += __shfl_xor_sync(FULL, x[0], o);
    }
    return x[0];
}

// ---- losses: rows of Z in, value and dL/dZ out; nothing else knows which loss it is ----------------------------------

// `own` is z_y, or z_y - 1 without the anchor's own label
__device__ float loss_exact(const float* z, int y, float own, float tau, float scale, float* h) {
    float shift = 0.f;
    for (int j = 0; j < C; j++) shift = j == y ? shift : fmaxf(shift, tau * (z[j] - own));
    float mass = 0.f;
    for (int j = 0; j < C; j++) {
        h[j] = j == y ? 0.f : expf(tau * (z[j] - own) - shift);
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

// The anchors' cross-entropy by one warp.
__device__ float anchors_loss(const float* X, const int* codes, float* H, const Params& p) {
    float total = 0.f;
    for (int a = threadIdx.x % 32; a < S; a += 32) {
        const float* z = X + (M + a) * XC;
        const int y = codes[a];
        total += p.loss == 0 || p.loss == 3 ? loss_exact(z, y, z[y] - (float)(p.loss == 3), p.tau, p.scale, H + a * C)
                                            : loss_official(z, y, p.tau, p.scale, p.loss == 1, H + a * C);
    }
    return warp_sum(total);
}

#if QUERIES
__device__ __forceinline__ float log_or_zero(float x) { return x > 0.f ? logf(x) : 0.f; }

// The terms of the other points: from Z, the first columns of X, dL/dZ into the other columns, and z . dL/dz of each
// point into tail. Leaves in `parts` each warp's part of the mean entropy, then of each class log and share of the mean.
__device__ __noinline__ void queries_loss(float* X, float* tail, float* parts, const Params& p) {
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    float *log_mean = parts + WARPS, *product = log_mean + C;
    for (int i = tid; i < M; i += TPB) {  // distributions
        const float* z = X + i * XC;
        float *share = X + i * XC + C, top = z[0], mass = 0.f;
        for (int j = 1; j < C; j++) top = fmaxf(top, z[j]);
        // relative to the largest: squares of small numbers would underflow
        const float unit = top > 0.f ? 1.f / top : 0.f;
        for (int j = 0; j < C; j++) {
            share[j] = QUERIES == 2 ? expf(p.tau * (z[j] - top)) : (unit * z[j]) * (unit * z[j]);
            mass += share[j];
        }
        const float each = mass > 0.f ? 1.f / mass : 0.f;
        for (int j = 0; j < C; j++) share[j] *= each;
    }
    __syncthreads();
    for (int j = warp; j < C; j += WARPS) {
        float mean = 0.f;
        for (int i = lane; i < M; i += 32) mean += X[i * XC + C + j];
        mean = warp_sum(mean) * (1.f / M);
        if (lane == 0) log_mean[j] = log_or_zero(mean), product[j] = mean * log_or_zero(mean);
    }
    __syncthreads();
    const float entropy = p.entropy / M, marginal = p.marginal / M;
    float spread = 0.f;
    for (int i = tid; i < M; i += TPB) {
        const float* z = X + i * XC;
        float *h = X + i * XC + C, average = 0.f, end = 0.f;
        for (int j = 0; j < C; j++) {
            const float log_share = log_or_zero(h[j]);
            spread -= h[j] * log_share;
            average += h[j] * (marginal * log_mean[j] - entropy * log_share);
        }
        for (int j = 0; j < C; j++) {
            const float away = marginal * log_mean[j] - entropy * log_or_zero(h[j]) - average;
            h[j] = away * (QUERIES == 2 ? p.tau * h[j] : z[j] > 0.f ? 2.f * h[j] / z[j] : 0.f);
            end += z[j] * h[j];
        }
        tail[i] = end;
    }
    spread = warp_sum(spread);
    if (lane == 0) parts[warp] = entropy * spread;
}

__device__ float queries_total(const float* parts, const Params& p) {
    float total = 0.f, balance = 0.f;
    for (int w = 0; w < WARPS; w++) total += parts[w];
    for (int j = 0; j < C; j++) balance += parts[WARPS + C + j];
    return total + p.marginal * balance;
}
#endif

// ---- the wide half --------------------------------------------------------------------------------------------------

struct Moment {
    float mean, square;
};

__device__ __forceinline__ float adam(float g, Moment& m, float2 rates, const Params& p) {
    if (!p.adam) return p.lr * g;
    m.mean = p.beta1 * m.mean + (1.f - p.beta1) * g;
    m.square = p.beta2 * m.square + (1.f - p.beta2) * g * g;
    const float denominator = fast_root(m.square) * rates.y + p.eps;
    return denominator > 0.f ? fast_ratio(rates.x * m.mean, denominator) : 0.f;
}

// Gradient and Adam step (unless this is the first pass), then similarities of anchors to all points into simA.
// V is in pieces too, (PIECES, S, CW), and stays in shared memory; a lane has the same two dimensions of the same anchors
// from the gradient to the similarities. The tensor cores cut off what they add up: a warp's sums are short enough.
// Not inlined: what it needs in a loop would be kept in registers through the rest of the step.
__device__ __noinline__ void sweep(bool update, const float2* rates_now, const Job& job, float* buffers, float* V,
                                   const half_t* coefficient, const float* unscale, float* scratch, float* simA,
                                   unsigned barrier, int turn, const Params& params) {
    const Params p = params;  // in registers
    const float2 rates = *rates_now;
    const float magnify = job.magnify;
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, matrix = lane / 8;
    const int mine = lane / 4 * CW + lane % 4 * 2;  // of a group of anchors in a piece
    const half_t* factors = coefficient + (matrix % 2 * 8 + lane % 8) * GS + matrix / 2 * 8;
    auto there = [&](int r) { return 8 * r + 7 < S || 8 * r + lane / 4 < S; };
    float sums[DOWN][GROUPS][4] = {}, back[GROUPS];
#pragma unroll
    for (int r = 0; r < GROUPS; r++) back[r] = update && there(r) ? unscale[8 * r + lane / 4] : 0.f;
    float* v_piece = V + warp * S * CW + mine;
    float *piece = job.pieces + (size_t)warp * BUFFER, *first = piece;
    if (update) moments_are_there<0>();
#pragma unroll 1
    for (int u = 0; u < DEPTH; u++, v_piece += WARPS * S * CW, piece += WARPS * BUFFER) {
        float* buffer = buffers + turn * BUFFER;
        const half_t* points = (const half_t*)buffer;
        float2 v[GROUPS];
        unsigned high[SP / 8] = {}, low[SP / 8] = {};
#pragma unroll
        for (int r = 0; r < GROUPS; r++) {
            v[r] = there(r) ? *(const float2*)(v_piece + 8 * r * CW) : make_float2(0.f, 0.f);
            split(magnify * v[r].x, magnify * v[r].y, high[r], low[r]);
        }
        if (DEPTH > 1 || !update) await_piece(barrier, turn);
        __syncwarp();  // the piece is here, and no lane reads the other one any more
        if (DEPTH > 1) {  // a single piece stays; of several, the last loads the first for the next step
            turn ^= 1;
            if (u == DEPTH - 1) moments_are_there<DEPTH - 2>();
            start_piece(buffers + turn * BUFFER, u == DEPTH - 1 ? first : piece + WARPS * BUFFER, barrier);
        }
        if (update) {
            float large[TILES][4] = {}, small[TILES][4] = {};  // small: what has a low half in it
            auto add = [&](int k, unsigned high0, unsigned high1, unsigned low0, unsigned low1) {
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    unsigned a[4];
                    load_matrices(a, factors + 16 * i * GS + 16 * k);
                    multiply_add(large[i], a, high0, high1);
                    multiply_add(small[i], a, low0, low1);
                    if (STACKED) continue;
                    load_matrices(a, factors + (LOW + 16 * i) * GS + 16 * k);
                    multiply_add(small[i], a, high0, high1);
                }
            };
#pragma unroll
            for (int k = 0; k < MP / 16; k++) {
                unsigned b[4];
                load_transposed(b, points + (matrix / 2 * MP + 16 * k + matrix % 2 * 8 + lane % 8) * CW);
                add(k, b[0], b[1], b[2], b[3]);
            }
#pragma unroll
            for (int k = 0; k < SP / 16; k++)
                add(MP / 16 + k, transposed(high[2 * k]), transposed(high[2 * k + 1]), transposed(low[2 * k]),
                    transposed(low[2 * k + 1]));
            float* mean = buffer + PIECE + mine;
            float* square = mean + S * CW;
#pragma unroll
            for (int r = 0; r < GROUPS; r++) {
                if (!there(r)) continue;
                const int i = r / 2, o = r % 2 * 2;
                float gx = large[i][o] + small[i][o], gy = large[i][o + 1] + small[i][o + 1];
                if (STACKED) gx += large[0][2] + small[0][2], gy += large[0][3] + small[0][3];
                const float2 m = *(const float2*)(mean + 8 * r * CW), q = *(const float2*)(square + 8 * r * CW);
                Moment x{m.x, q.x}, y{m.y, q.y};
                v[r].x -= adam(back[r] * gx, x, rates, p);
                v[r].y -= adam(back[r] * gy, y, rates, p);
                *(float2*)(v_piece + 8 * r * CW) = v[r];
                *(float2*)(mean + 8 * r * CW) = make_float2(x.mean, y.mean);
                *(float2*)(square + 8 * r * CW) = make_float2(x.square, y.square);
                split(magnify * v[r].x, magnify * v[r].y, high[r], low[r]);
            }
            store_moments(piece, buffer);
        }
        // Points are the rows of these products: what a lane has of the anchors is laid out as columns are, too. High and low
        // halves of a point are neighbours in a row, so that one product has both.
        auto add = [&](float (*sum)[4], const unsigned* a) {
#pragma unroll
            for (int r = 0; r < GROUPS; r++) multiply_add(sum[r], a[0], a[1], low[r]);
#pragma unroll
            for (int r = 0; r < GROUPS; r++) multiply_add(sum[r], a, high[r], high[r]);
        };
#pragma unroll
        for (int i = 0; i < MP / 16; i++) {
            unsigned a[4];
            load_matrices(a, points + (matrix / 2 * MP + 16 * i + matrix % 2 * 8 + lane % 8) * CW);
            add(sums[i], a);
        }
#pragma unroll
        for (int i = 0; i < SP / 16; i++) {
            const unsigned a[4] = {high[2 * i], high[2 * i + 1], low[2 * i], low[2 * i + 1]};
            add(sums[MP / 16 + i], a);
        }
    }
    // the warps' sums, as many at a time as the scratch holds, in an order that does not change
    constexpr int MINE = (S * N + TPB - 1) / TPB;
    const float shrink = 1.f / (magnify * magnify);
    float total[MINE];
    for (int w0 = 0; w0 < WARPS; w0 += TOGETHER) {
        if (w0) __syncthreads();
        if (warp >= w0 && warp < w0 + TOGETHER)
#pragma unroll
            for (int r = 0; r < GROUPS; r++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int a = 8 * r + lane % 4 * 2 + k % 2;
                    float* to = scratch + ((warp - w0) * S + a) * NS + lane / 4 + k / 2 * 8;
                    if (8 * r + 7 < S || a < S)
#pragma unroll
                        for (int i = 0; i < DOWN; i++) to[16 * i] = sums[i][r][k];
                }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            const int e = tid + k * TPB, a = e / N, j = e % N;
            if (e >= S * N) break;
            // of two anchors' sums one for both, or their similarity could be at a K-th place one way and not the other
            const float* from = scratch + (j < M ? a * NS + j : min(a, j - M) * NS + MP + max(a, j - M));
            float sum = w0 ? total[k] : 0.f;
#pragma unroll
            for (int w = 0; w < TOGETHER; w++)
                if (w0 + w < WARPS) sum += from[w * S * NS];
            total[k] = sum;
        }
    }
#pragma unroll
    for (int k = 0; k < MINE; k++) {
        const int e = tid + k * TPB;
        if (e < S * N) simA[e] = e % N == M + e / N ? -1.f : fmaxf(shrink * total[k], 0.f);
    }
    scratch_is_read();
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

#if CORRECTED
// Where a matrix of halves, with rows of NP, has an entry: 8 columns of 8 rows are in different banks, mostly.
__device__ __forceinline__ int entry(int row, int column) { return row * NP + (column ^ (row & 4) << 1); }
#endif

// The K-th largest of a row of anchors by one warp, as bits: non-negative floats are ordered as integers. It is sought
// among the neighbours of the last step's, and if it is not near, by bisection.
__device__ int kth_bits(const float* row, int guess) {
    const int lane = threadIdx.x % 32;
    constexpr int WIDE = (N + 31) / 32;
    int bits[WIDE];
#pragma unroll
    for (int r = 0; r < WIDE; r++) bits[r] = 32 * r + lane < N ? __float_as_int(row[32 * r + lane]) : -1;
    auto reach = [&](int limit) {
        int count = 0;
#pragma unroll
        for (int r = 0; r < WIDE; r++) count += __popc(__ballot_sync(FULL, bits[r] >= limit));
        return count;
    };
    int count = reach(guess);
#pragma unroll 1
    for (int walked = 0; walked < 6; walked++) {
        int near = count >= K ? 0x7fffffff : -1;
#pragma unroll
        for (int r = 0; r < WIDE; r++)
            if (count >= K) near = bits[r] >= guess ? min(near, bits[r]) : near;
            else near = bits[r] < guess ? max(near, bits[r]) : near;
        near = count >= K ? __reduce_min_sync(FULL, near) : __reduce_max_sync(FULL, near);
        if (count == K) return near;
        if (count > K) {
            guess = near + 1;
            count = reach(guess);
            if (count < K) return near;  // equal values at the K-th place
        } else {
            guess = near;
            count = reach(guess);
            if (count >= K) return near;
        }
    }
    int low = 0;
#pragma unroll 1
    for (int bit = 30; bit >= 0; bit--)
        if (reach(low | (1 << bit)) >= K) low |= 1 << bit;
    return low;
}

// How many anchors are closer than `limit`.
__device__ __noinline__ int count_above(const float* anchors, float limit) {
    int count = 0;
#pragma unroll 5
    for (int a = 0; a < S; a++) count += anchors[a * N] > limit;
    return count;
}

// Each row's K-th largest similarity, less what counts as equal, and how far equal ones are let in. Of each rest
// point's list of best, `near` has the last places and the first one beyond.
__device__ __noinline__ void thresholds(const float* simA, const float* near, float* threshold, int* cut, int* kth,
                                        int* taken, Job& job) {
    const int tid = threadIdx.x, lane = tid % 32;
    for (int i = tid; i < M; i += TPB) {
        auto best = [&](int k) { return near[(k - (K - NEAR)) * M + i]; };
        const float* anchors = simA + i;
        // Of the K best, n are anchors: the least n for which no more than n are above the K - n-th of the list. It is
        // sought from the last step's on.
        int n = taken[i], count = n < K ? count_above(anchors, best(K - 1 - n)) : K;
        while (n < K && count > n) n++, count = n < K ? count_above(anchors, best(K - 1 - n)) : K;
        while (n > 0) {
            const int fewer = count_above(anchors, best(K - n));
            if (fewer > n - 1) break;
            n--, count = fewer;
        }
        taken[i] = n;
        float t = n < K ? best(K - 1 - n) : 3.4e38f;
        if (n == K) count = 0;
        for (bool first = true; count < n; first = false) {  // the n-th of the anchors, from above
            float top = -1.f;
            for (int a = 0; a < S; a++) {
                const float x = anchors[a * N];
                if (first ? x <= t : x < t) top = fmaxf(top, x);
            }
            if (top < 0.f) break;  // not a number
            t = top;
            count = 0;
            for (int a = 0; a < S; a++) count += anchors[a * N] >= t;
        }
        t *= 1.f - SLACK;
        threshold[i] = t;
        cut[i] = NO_CUT;
        int reach = 0;
        for (int a = 0; a < S; a++) reach += simA[a * N + i] >= t;
        if (t > 0.f && (reach > n || best(K - n) >= t)) cut[i] = tie_cut(i, t, simA, 1, N, job.rr + i * MS, &job.ties);
    }
    constexpr int BUSY = (M + 31) / 32 < WARPS ? (M + 31) / 32 : 0;  // warps that had rows of the rest
#pragma unroll 1
    for (int a = tid / 32 - BUSY; a < S && tid / 32 >= BUSY; a += WARPS - BUSY) {
        const float* row = simA + a * N;
        const int bits = kth_bits(row, kth[a]);
        const float t = __int_as_float(bits) * (1.f - SLACK);
        int reach = 0;
#pragma unroll
        for (int r = 0; r < (N + 31) / 32; r++)
            reach += __popc(__ballot_sync(FULL, 32 * r + lane < N && row[min(32 * r + lane, N - 1)] >= t));
        if (lane == 0) {
            kth[a] = bits;
            threshold[M + a] = t;
            cut[M + a] = t > 0.f && reach > K ? tie_cut(M + a, t, simA, 0, N, row, &job.ties) : NO_CUT;
        }
    }
    __syncthreads();
}

// The system I - alpha S of eq. 5, and the degrees: the lower triangle, zeros above, or all of it as halves.
template <bool TIES>
__device__ __noinline__ void build(const float* simA, const float* threshold, const int* cut, float* U, float* degree,
                                   float* scale, const Params& p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    constexpr int WIDE = (N + 31) / 32, ROUNDS = (N + WARPS - 1) / WARPS;
    constexpr int ROOM = ROUNDS > 16 ? 32 : ROUNDS > 8 ? 16 : ROUNDS > 4 ? 8 : ROUNDS > 2 ? 4 : ROUNDS;
    static_assert(ROUNDS <= 32, "a lane for every row of a warp");
    float weight[ROUNDS][WIDE], theirs[WIDE], total[ROOM] = {};
#pragma unroll
    for (int r = 0; r < WIDE; r++) theirs[r] = threshold[min(lane + 32 * r, N - 1)];
#pragma unroll
    for (int o = 0; o < ROUNDS; o++) {
        const int i = warp + o * WARPS;
        if ((o + 1) * WARPS > N && i >= N) break;
        const float mine = threshold[i];
        const bool stays = (o + 1) * WARPS <= M || i < M;
#pragma unroll
        for (int r = 0; r < WIDE; r++) {
            const int j = lane + 32 * r;
            float sim = -1.f;
            if (stays && (32 * r + 32 <= M || j < M)) sim = U[i * MS + j];
            else if (32 * r + 32 <= N || j < N) sim = stays ? simA[(j - M) * N + i] : simA[(i - M) * N + j];
            bool forth = sim >= mine, back = sim >= theirs[r];
            if (TIES && j < N) forth = chosen(sim, i, j, threshold, cut), back = chosen(sim, j, i, threshold, cut);
            // a point is no neighbour of its own: its similarity is -1, below every threshold
            const float half = 0.5f * power(fmaxf(sim, 0.f), p.gamma);
            weight[o][r] = (forth ? half : 0.f) + (back ? half : 0.f);
            total[o] += weight[o][r];
        }
    }
    const float sum = warp_sums<ROOM>(total) + 1e-12f;
    const int row = warp + lane / (32 / ROOM) * WARPS;
    if (lane % (32 / ROOM) == 0 && row < N) degree[row] = sum, scale[row] = inverse_root(sum);
    __syncthreads();
    float others[WIDE];
#pragma unroll
    for (int r = 0; r < WIDE; r++) others[r] = -p.alpha * scale[min(lane + 32 * r, N - 1)];
#pragma unroll
    for (int o = 0; o < ROUNDS; o++) {
        const int i = warp + o * WARPS;
        if ((o + 1) * WARPS > N && i >= N) break;
        const float f = scale[i];
#pragma unroll
        for (int r = 0; r < WIDE; r++) {
            const int j = lane + 32 * r;
#if CORRECTED
            unsigned high, low;
            split(j < N && j != i ? f * others[r] * weight[o][r] : (float)(i == j), 0.f, high, low);
            half_t* to = (half_t*)U + entry(i, j);
            if (32 * r + 32 <= NP || j < NP) to[0] = (half_t)high, to[2 * MATRIX] = (half_t)low;
#else
            float value = 0.f;
            if (32 * r < (o + 1) * WARPS) value = j < i ? f * others[r] * weight[o][r] : (float)(i == j);
            if (32 * r + 32 <= N || j < N) U[i * LD + j] = value;
#endif
        }
    }
    __syncthreads();
}

#if CORRECTED
// ---- solutions that are corrected -----------------------------------------------------------------------------------

// A step changes the system a little, so the last step's solutions are nearly right, and so is an inverse of some steps
// ago. Solutions X of A X = B are corrected, X += P (B - A X), until they are right: residuals are made to the precision
// of float32, while P and what it is multiplied with are plain halves. Newton's iteration P <- (2 I - P A) P squares what
// P is wrong by, and it leads to the inverse from P = I on, since the eigenvalues of A are between 0 and 2.

#define LIFT 1024.f         // of residuals, which would be too small for halves
#define ENOUGH 1e-6f        // a residual of float32, where right-hand sides are about 1
#define ENOUGH_ADJOINT 4e-6f  // of solutions that only tell the step where to go
#define ROUGH 0.01f         // a correction that leaves more than this calls for a better inverse before the next step
#define MUCH_TOO_ROUGH 0.1f  // and before the next correction
#define COLUMN_TILES ((C + 7) / 8)
#define ROW_TILES (NP / 16)
#define MOST_ROUNDS 12

// Fragments of a matrix of halves, of 16 columns by 16 rows, or of 16 rows by 16 columns; rows after the last are any.
__device__ __forceinline__ void load_columns(unsigned* to, const half_t* matrix, int n, int k) {
    const int lane = threadIdx.x % 32, part = lane / 8;
    load_transposed(to, matrix + entry(min(16 * k + part % 2 * 8 + lane % 8, N - 1), 16 * n + part / 2 * 8));
}
// Where they begin for a lane; the next ones along a row are 16 further. Of solutions, high halves come before low.
__device__ __forceinline__ const half_t* rows_of(const half_t* matrix, int m) {
    const int lane = threadIdx.x % 32, part = lane / 8;
    return matrix + entry(min(16 * m + part % 2 * 8 + lane % 8, N - 1), part / 2 * 8);
}
__device__ __forceinline__ const half_t* solutions_of(const half_t* high, const half_t* low, int t) {
    const int lane = threadIdx.x % 32, part = lane / 8;
    return (part < 2 ? high : low) + entry(8 * t + lane % 8, part % 2 * 8);
}

// P <- (2 I - P A) P, in which a warp makes 16 rows.
__device__ __noinline__ void improve_inverse(const half_t* A, half_t* P) {
    const int lane = threadIdx.x % 32, m = threadIdx.x / 32;
    unsigned found[ROW_TILES][4];
    if (m < ROW_TILES) {
        unsigned rows[ROW_TILES][4], left[ROW_TILES][4];
#pragma unroll
        for (int k = 0; k < ROW_TILES; k++) load_matrices(rows[k], rows_of(P, m) + 16 * k);
        auto product = [&](unsigned(*to)[4], const unsigned(*with)[4], bool last) {
#pragma unroll
            for (int n = 0; n < ROW_TILES; n++) {
                float sum[2][4] = {};
#pragma unroll
                for (int k = 0; k < ROW_TILES; k++) {
                    unsigned b[4];
                    load_columns(b, last ? P : A, n, k);
                    multiply_add(sum[0], with[k], b[0], b[1]);
                    multiply_add(sum[1], with[k], b[2], b[3]);
                }
#pragma unroll
                for (int o = 0; o < 4; o++) {
                    float x[2];
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        x[e] = sum[o / 2][o % 2 * 2 + e];
                        const int row = 16 * m + lane / 4 + o % 2 * 8, column = 16 * n + o / 2 * 8 + lane % 4 * 2 + e;
                        if (!last) x[e] = (row == column ? 2.f : 0.f) - x[e];
                        if (row >= N || column >= N) x[e] = 0.f;
                    }
                    unsigned rest;
                    split(x[0], x[1], to[n][o], rest);
                }
            }
        };
        product(left, rows, false);
        product(found, left, true);
    }
    __syncthreads();
    if (m < ROW_TILES)
#pragma unroll
        for (int n = 0; n < ROW_TILES; n++)
#pragma unroll
            for (int o = 0; o < 4; o++) {
                const int row = 16 * m + lane / 4 + o % 2 * 8;
                if (row < N) *(unsigned*)(P + entry(row, 16 * n + o / 2 * 8 + lane % 4 * 2)) = found[n][o];
            }
    __syncthreads();
}

__device__ __noinline__ void first_inverse(const half_t* A, half_t* P, int doublings) {
    for (int e = threadIdx.x; e < N * NP; e += TPB) P[entry(e / NP, e % NP)] = e / NP == e % NP ? 0x3c00 : 0;  // 1 and 0
    __syncthreads();
    for (int o = 0; o < doublings; o++) improve_inverse(A, P);
}

// The last solutions, columns of X from `column` on, as halves, high and then low; or zero if there are none, or if
// right-hand sides have become so much smaller that they are of no use. `up` are powers of two for the columns.
__device__ void start_solutions(float* X, int column, const float* up, half_t* B, bool none) {
    for (int e = threadIdx.x; e < COLUMN_TILES * 8 * NP; e += TPB) {
        const int q = e / NP, i = e % NP;
        float* x = X + i * XC + column + q;
        const bool there = q < C && i < N;
        float scaled = there && !none ? *x * up[q] : 0.f;
        if (there && (scaled == 0.f || !(fabsf(scaled) < 30.f))) *x = scaled = 0.f;
        unsigned high, low;
        split(scaled, 0.f, high, low);
        B[entry(q, i)] = (half_t)high, B[2 * SOLUTIONS + entry(q, i)] = (half_t)low;
    }
}

// Columns of X solve the system: the first, whose right-hand sides are the labels, or the others, where H is given. X comes
// nearly right, and as halves in B, and behind them there is room for residuals. `up` makes right-hand sides 1 to 2.
// `most` has two places for each warp's largest residual; returns what the inverse last was wrong by.
__device__ __noinline__ float correct(const half_t* A, half_t* P, half_t* B, float* X, const int* codes, const float* H,
                                      const float* up, float (*most)[WARPS], float wrong, int doublings) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, pair = lane % 4 * 2;
    const float enough = H ? ENOUGH_ADJOINT : ENOUGH;
    half_t *lower = B + 2 * SOLUTIONS, *residuals = lower + 2 * SOLUTIONS;
    if (H) X += C;
    float before = 3.4e38f;
#pragma unroll 1
    for (int round = 0; round < MOST_ROUNDS; round++) {
        float largest = 0.f;
        for (int job = warp; job < ROW_TILES * COLUMN_TILES; job += WARPS) {
            const int m = job % ROW_TILES, q = job / ROW_TILES * 8 + pair;
            const half_t *high = rows_of(A, m), *both = solutions_of(B, lower, job / ROW_TILES);
            float sum[3][4] = {};
#pragma unroll
            for (int k = 0; k < ROW_TILES; k++) {
                unsigned a[4], low[4], b[4];
                load_matrices(a, high + 16 * k);
                load_matrices(low, high + 2 * MATRIX + 16 * k);
                load_matrices(b, both + 16 * k);
                multiply_add(sum[0], a, b[0], b[1]);
                multiply_add(sum[1], low, b[0], b[1]);
                multiply_add(sum[2], a, b[2], b[3]);
            }
            float r[4];
#pragma unroll
            for (int o = 0; o < 4; o++) r[o] = -(sum[0][o] + (sum[1][o] + sum[2][o]));
            if (16 * m + 16 > M)  // where there are anchors, or rows after the last
#pragma unroll
                for (int o = 0; o < 4; o++) {
                    const int i = 16 * m + row + o / 2 * 8, a = i - M, column = q + o % 2;
                    if (i >= N) r[o] = 0.f;
                    else if (a >= 0 && column < C) r[o] += H ? H[a * C + column] * up[column] : (float)(codes[a] == column);
                }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                unsigned both, rest;
                split(LIFT * r[2 * h], LIFT * r[2 * h + 1], both, rest);
                const int i = 16 * m + row + 8 * h;
                residuals[entry(q, i)] = (half_t)both, residuals[entry(q + 1, i)] = (half_t)(both >> 16);
                largest = fmaxf(largest, fmaxf(fabsf(r[2 * h]), fabsf(r[2 * h + 1])));
            }
        }
        largest = __int_as_float(__reduce_max_sync(FULL, __float_as_int(largest)));
        if (lane == 0) most[round % 2][warp] = largest;
        __syncthreads();
        float now = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) now = fmaxf(now, most[round % 2][w]);
        if (round) wrong = now / before;
        if (!(now > enough) || (now < 16.f * enough && wrong > 0.5f)) break;  // or no better is possible
        if (round && wrong > 0.9f) first_inverse(A, P, doublings);
        else if (round && wrong > MUCH_TOO_ROUGH) improve_inverse(A, P);
        before = now;
        for (int job = warp; job < ROW_TILES * COLUMN_TILES; job += WARPS) {
            const int m = job % ROW_TILES, q = job / ROW_TILES * 8 + pair;
            const half_t *rough = rows_of(P, m), *right = solutions_of(residuals, residuals, job / ROW_TILES);
            float sum[2][4] = {};
#pragma unroll
            for (int k = 0; k < ROW_TILES; k++) {
                unsigned a[4], b[4];
                load_matrices(a, rough + 16 * k);
                load_matrices(b, right + 16 * k);
                multiply_add(sum[k % 2], a, b[0], b[1]);
            }
#pragma unroll
            for (int o = 0; o < 4; o++) {
                const int i = 16 * m + row + o / 2 * 8, column = q + o % 2;
                if (i >= N || column >= C) continue;
                const float factor = up[column], down = __int_as_float((254 << 23) - __float_as_int(factor));
                float* x = X + i * XC + column;
                const float better = *x + (sum[0][o] + sum[1][o]) * (down * (1.f / LIFT));
                *x = better;
                unsigned high, low;
                split(better * factor, 0.f, high, low);
                B[entry(column, i)] = (half_t)high, lower[entry(column, i)] = (half_t)low;
            }
        }
        __syncthreads();
        if (now * fmaxf(wrong, 1e-3f) < 0.5f * enough) break;
    }
    return wrong;
}
#else
// Factor the 16 x 16 block at k0 by one warp, a row to a lane.
__device__ void factor_block(float* U, float* inverse, int k0) {
    const int lane = threadIdx.x % 32, r = lane & 15, i = k0 + r;
    float a[16];
#pragma unroll
    for (int c = 0; c < 16; c++) a[c] = i < N && c <= r ? U[i * LD + k0 + c] : (float)(c == r);
#pragma unroll
    for (int c = 0; c < 16; c += 2) {  // two columns: with their own block of the diagonal inverted, one wait for both
        const float d = __shfl_sync(FULL, a[c], c), e = __shfl_sync(FULL, a[c], c + 1);
        const float f = __shfl_sync(FULL, a[c + 1], c + 1);
        const float determinant = d * f - e * e, reciprocal = fast_ratio(1.f, determinant);
        const float x = (a[c] * f - a[c + 1] * e) * reciprocal, y = (a[c + 1] * d - a[c] * e) * reciprocal;
#pragma unroll
        for (int q = c + 2; q < 16; q++) {
            const float first = __shfl_sync(FULL, a[c], q), second = __shfl_sync(FULL, a[c + 1], q);
            if (r >= q) a[q] -= x * first + y * second;
        }
        const float root = fast_inverse_root(d), root_next = fast_inverse_root(determinant) * d * root;
        a[c] *= root;
        a[c + 1] = (a[c + 1] - a[c] * (e * root)) * root_next;
        if (lane == c && i < N) inverse[i] = root;
        if (lane == c + 1 && i < N) inverse[i] = root_next;
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
        if (k0 > 0) {  // the block of the diagonal first
            for (int e = tid; e < 256; e += TPB) {
                const int r = e / 16, c = e % 16;
                if (c > r || k0 + r >= N) continue;
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

// So many columns a warp solves for at once: their chains are independent.
__device__ constexpr int of_a_warp(int columns) { return columns < 3 * WARPS ? (columns + WARPS - 1) / WARPS : 3; }

// Both substitutions in the anchors' rows: right-hand sides given(a, q) into the columns of X
// from `column` on.
template <class Given>
__device__ void solve_anchors(const float* U, const float* inverse, float* X, int column, Given given) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    constexpr int R = (S + 31) / 32, AT_ONCE = of_a_warp(C);
    for (int q0 = AT_ONCE * warp; q0 < C; q0 += AT_ONCE * WARPS) {
        float x[AT_ONCE][R];
#pragma unroll
        for (int o = 0; o < AT_ONCE; o++)
#pragma unroll
            for (int i = 0; i < R; i++)
                x[o][i] = lane + 32 * i < S ? given(lane + 32 * i, min(q0 + o, C - 1)) : 0.f;
        auto eliminate = [&](int i, int k, int r, bool below) {
            const int row = lane + 32 * r;
            const float reciprocal = inverse[M + k];
            const bool mine = below ? row > k && row < S : row < k;
            const float u = mine ? U[(M + max(row, k)) * LD + M + min(row, k)] : 0.f;
#pragma unroll
            for (int o = 0; o < AT_ONCE; o++) x[o][r] -= u * (__shfl_sync(FULL, x[o][i], k & 31) * reciprocal);
        };
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll 5
            for (int k = 32 * i; k < min(32 * i + 32, S); k++) {
#pragma unroll
                for (int r = i; r < R; r++) eliminate(i, k, r, true);
#pragma unroll
                for (int o = 0; o < AT_ONCE; o++)
                    if (lane == (k & 31)) x[o][i] *= inverse[M + k];
            }
#pragma unroll
        for (int i = R - 1; i >= 0; i--)
#pragma unroll 5
            for (int k = min(32 * i + 32, S) - 1; k >= 32 * i; k--) {
#pragma unroll
                for (int r = 0; r <= i; r++) eliminate(i, k, r, false);
#pragma unroll
                for (int o = 0; o < AT_ONCE; o++)
                    if (lane == (k & 31)) x[o][i] *= inverse[M + k];
            }
#pragma unroll
        for (int o = 0; o < AT_ONCE; o++)
#pragma unroll
            for (int i = 0; i < R; i++)
                if (lane + 32 * i < S && q0 + o < C) X[(M + lane + 32 * i) * XC + column + q0 + o] = x[o][i];
    }
    __syncthreads();
}

// Backward substitution in the other rows of columns `first` and after; right-hand sides are zero, or those in X.
template <bool GIVEN>
__device__ __noinline__ void solve_rest(const float* U, const float* inverse, float* X, int first, int columns) {
    const int lane = threadIdx.x % 32;
    // with terms on queries the adjoint depends on Z of all points, so the two have a turn each
    constexpr int R = (M + 31) / 32, AT_ONCE = of_a_warp(QUERIES ? C : 2 * C), FEW = 4;
    for (int q = AT_ONCE * (threadIdx.x / 32); q < columns; q += AT_ONCE * WARPS) {
        float x[AT_ONCE][R];
        int column[AT_ONCE];
#pragma unroll
        for (int o = 0; o < AT_ONCE; o++) {
            column[o] = first + min(q + o, columns - 1);
#pragma unroll
            for (int i = 0; i < R; i++)
                x[o][i] = GIVEN && lane + 32 * i < M ? X[(lane + 32 * i) * XC + column[o]] : 0.f;
        }
#pragma unroll 5
        for (int k = N - 1; k >= M; k--)
#pragma unroll
            for (int r = 0; r < R; r++) {
                const float u = U[k * LD + min(lane + 32 * r, M - 1)];
#pragma unroll
                for (int o = 0; o < AT_ONCE; o++) x[o][r] -= u * X[k * XC + column[o]];
            }
#pragma unroll
        for (int i = R - 1; i >= 0; i--)
#pragma unroll 1
            for (int k = (32 * i + 32 < M ? 32 * i + 32 : M) - 1; k >= 32 * i; k -= FEW) {
                // everything read ahead: only the chain of values is sequential, and it waits once for a few rows
                float u[FEW][R], between[FEW][FEW], reciprocal[FEW];
#pragma unroll
                for (int e = 0; e < FEW; e++) {
                    const int row = max(k - e, 0);
                    reciprocal[e] = k - e >= 32 * i ? inverse[row] : 0.f;
#pragma unroll
                    for (int r = 0; r <= i; r++) u[e][r] = U[row * LD + lane + 32 * r];  // zero right of the diagonal
#pragma unroll
                    for (int f = 0; f < e; f++) between[f][e] = U[(k - f) * LD + row];
                }
#pragma unroll
                for (int o = 0; o < AT_ONCE; o++) {
                    float value[FEW];
#pragma unroll
                    for (int e = 0; e < FEW; e++) value[e] = __shfl_sync(FULL, x[o][i], (k - e) & 31);
#pragma unroll
                    for (int e = 0; e < FEW; e++) {
#pragma unroll
                        for (int f = 0; f < e; f++) value[e] -= between[f][e] * value[f];
                        value[e] *= reciprocal[e];
                    }
#pragma unroll
                    for (int e = 0; e < FEW; e++)
#pragma unroll
                        for (int r = 0; r <= i; r++) x[o][r] -= u[e][r] * value[e];
#pragma unroll
                    for (int e = 0; e < FEW; e++)
                        if (lane == ((k - e) & 31) && k - e >= 32 * i) x[o][i] = value[e];
                }
            }
#pragma unroll
        for (int o = 0; o < AT_ONCE; o++)
#pragma unroll
            for (int i = 0; i < R; i++)
                if (lane + 32 * i < M) X[(lane + 32 * i) * XC + column[o]] = x[o][i];
    }
    __syncthreads();
}

#if QUERIES
// Forward substitution of right-hand sides in the other rows, which are in the adjoint's columns of X; what is left of
// the anchors' rows of H goes into theirs.
__device__ __noinline__ void eliminate_rest(const float* U, const float* inverse, const float* H, float* X) {
    const int lane = threadIdx.x % 32;
    constexpr int R = (N + 31) / 32, AT_ONCE = of_a_warp(C), FEW = 4;
    for (int q0 = AT_ONCE * (threadIdx.x / 32); q0 < C; q0 += AT_ONCE * WARPS) {
        float x[AT_ONCE][R];
#pragma unroll
        for (int o = 0; o < AT_ONCE; o++)
#pragma unroll
            for (int i = 0; i < R; i++) {
                const int row = min(lane + 32 * i, N - 1), q = min(q0 + o, C - 1);
                x[o][i] = row < M ? X[row * XC + C + q] : H[(row - M) * C + q];
            }
#pragma unroll
        for (int i = 0; i < (M + 31) / 32; i++)
#pragma unroll 1
            for (int k = 32 * i; k < (32 * i + 32 < M ? 32 * i + 32 : M); k += FEW) {
                float u[FEW][R], between[FEW][FEW], reciprocal[FEW];
#pragma unroll
                for (int e = 0; e < FEW; e++) {
                    reciprocal[e] = k + e < M ? inverse[k + e] : 0.f;
#pragma unroll
                    for (int r = i; r < R; r++)  // zero right of the diagonal
                        u[e][r] = k + e < M ? U[min(lane + 32 * r, N - 1) * LD + k + e] : 0.f;
#pragma unroll
                    for (int f = 0; f < e; f++) between[f][e] = U[min(k + e, N - 1) * LD + k + f];
                }
#pragma unroll
                for (int o = 0; o < AT_ONCE; o++) {
                    float value[FEW];
#pragma unroll
                    for (int e = 0; e < FEW; e++) value[e] = __shfl_sync(FULL, x[o][i], (k + e) & 31);
#pragma unroll
                    for (int e = 0; e < FEW; e++) {
#pragma unroll
                        for (int f = 0; f < e; f++) value[e] -= between[f][e] * value[f];
                        value[e] *= reciprocal[e];
                    }
#pragma unroll
                    for (int e = 0; e < FEW; e++)
#pragma unroll
                        for (int r = i; r < R; r++) x[o][r] -= u[e][r] * value[e];
#pragma unroll
                    for (int e = 0; e < FEW; e++)
                        if (lane == ((k + e) & 31) && k + e < M) x[o][i] = value[e];
                }
            }
#pragma unroll
        for (int o = 0; o < AT_ONCE; o++)
#pragma unroll
            for (int i = 0; i < R; i++)
                if (lane + 32 * i < N && q0 + o < C) X[(lane + 32 * i) * XC + C + q0 + o] = x[o][i];
    }
    __syncthreads();
}
#endif

#endif

extern "C" __global__ void __launch_bounds__(TPB, BLOCKS)
a2lp(float* all_pieces, const float* all_magnify, const int* all_codes, const float2* rates, const float* all_rr,
     const float* all_near, float* all_z, float* all_anchors, float* all_losses, int* all_taken,
     int* all_converged, int* next, int* finished, const __grid_constant__ Params p) {
    extern __shared__ float4 shared4[];
    float* buffers = (float*)shared4;              // WARPS x 2 x BUFFER
    float* V = buffers + WARPS * 2 * BUFFER;       // PIECES x S x CW
    float* U = V + S * DP;                         // the system; in the wide half, scratch
    half_t* coefficient = (half_t*)(U + SCRATCH);  // anchors (high halves, then low) x (MP + SP points)
#if CORRECTED
    half_t* system = (half_t*)U;
    half_t* rough = (half_t*)(U + SYSTEM);         // its inverse
    half_t* halves = rough + 2 * MATRIX;           // solutions (high, low) and residuals, SOLUTIONS each
    float* simA = U + SYSTEM + MATRIX + 3 * SOLUTIONS;  // S x N
#else
    float* simA = U + SYSTEM + FACTORS;            // S x N
#endif
    float* X = simA + S * N;                       // N x XC
    float* H = X + N * XC;                         // S x C
    float* near = H + S * C;                       // (NEAR + 1) x M
    float* threshold = near + (NEAR + 1) * M;      // N each
    float* degree = threshold + N;
    float* d_degree = degree + N;
    float* scale = d_degree + N;
    float* inverse = scale + N;
    int* cut = (int*)(inverse + N);
    int* codes = cut + N;                          // S
    int* kth = codes + S;                          // S
    int* taken = kth + S;                          // M: of each one's neighbours so many are anchors
    float* unscale = (float*)(taken + M);          // S
#if QUERIES
    float* parts = unscale + S;                    // WARPS + 2 C: of the terms of queries
#endif
#if CORRECTED
    float* up = unscale + S;                       // 2 C: powers of two for solutions, 1 for those of Z
    __shared__ float most[2][WARPS];  // largest residuals
#endif
    __shared__ Job job;
    __shared__ unsigned long long barriers[WARPS + 1];  // of the warps' pieces, and of similarities

    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const unsigned barrier = shared_at(barriers + warp), similarities = shared_at(barriers + WARPS);
    buffers += warp * 2 * BUFFER;
    start_barriers(barrier, similarities);
#if CORRECTED
    float wrong = 1.f;  // what the rough inverse last was wrong by
    for (int q = tid; q < C; q += TPB) up[q] = 1.f;
#endif
    int turn = 0;   // of the two buffers; the barrier's phase is the same
    int built = 0;  // phase of the similarities' barrier
    for (;;) {
        if (tid == 0) {
            const int unit = atomicAdd(next, 1), task = unit % p.tasks, part = unit / p.tasks;
            // another block took the part before, and comes to its end without this one
            while (part < p.parts && atomicAdd(finished + task, 0) < part) __nanosleep(200);
            __threadfence();
            job.pieces = all_pieces + (size_t)task * PIECES * BUFFER;
            job.rr = all_rr + (size_t)task * M * MS;
            job.losses = all_losses + (size_t)task * p.steps;
            job.magnify = all_magnify[task];
            job.task = task, job.part = part;
            job.first = part * p.part, job.last = part + 1 < p.parts ? job.first + p.part : p.steps + 1;
            job.stop = job.ties = 0;
        }
        __syncthreads();
        if (job.part >= p.parts) return;
        const int task = job.task;
        if (__ldcg(all_converged + task)) {
            if (tid == 0) atomicExch(finished + task, job.part + 1);
            __syncthreads();
            continue;
        }
        moments_are_seen();
        start_piece(buffers + turn * BUFFER, job.pieces + (size_t)warp * BUFFER, barrier);
        for (int e = tid; e < S * DP; e += TPB) {
            const int a = e / DP, c = e % DP;
            V[(c / CW * S + a) * CW + c % CW] = __ldcg(all_anchors + ((size_t)task * S + a) * DP + c);
        }
        for (int e = tid; e < (NEAR + 1) * M; e += TPB) near[e] = all_near[(size_t)task * (NEAR + 1) * M + e];
        for (int a = tid; a < S; a += TPB) codes[a] = all_codes[task * S + a], kth[a] = 0x3f000000;
        for (int i = tid; i < M; i += TPB) taken[i] = 0;
        __syncthreads();

        for (int step = job.first;; step++) {
            sweep(step > job.first, rates + max(step - 1, 0), job, buffers, V, coefficient, unscale, U, simA, barrier, turn, p);
            if (DEPTH > 1) turn ^= DEPTH % 2;
            if (step == job.last) break;
            start_similarities(U, job.rr, similarities);
#if CORRECTED
            // anew after some steps, even if this block has had the task all along, so that results do not depend on it
            const bool anew = step % p.part == 0;
            start_solutions(X, 0, up, halves, anew);
            if (anew) for (int i = tid; i < N * C; i += TPB) X[i / C * XC + C + i % C] = 0.f;
#endif
            thresholds(simA, near, threshold, cut, kth, taken, job);
            await_similarities(similarities, built);
            built ^= 1;
            const bool tied = job.ties;  // rare
            if (tied) build<true>(simA, threshold, cut, U, degree, scale, p);
            else build<false>(simA, threshold, cut, U, degree, scale, p);
#if CORRECTED
            if (anew) first_inverse(system, rough, p.doublings);
            else if (wrong > ROUGH) improve_inverse(system, rough), wrong *= wrong;
            wrong = correct(system, rough, halves, X, codes, nullptr, up, most, wrong, p.doublings);
#else
            factor(U, inverse);
            solve_anchors(U, inverse, X, 0, [&](int a, int q) { return (float)(codes[a] == q); });
#endif
            if (step == p.steps) break;
#if QUERIES
            solve_rest<false>(U, inverse, X, 0, C);
            queries_loss(X, d_degree, parts, p);
            __syncthreads();
#endif
            if (warp == 0) {
                float total = anchors_loss(X, codes, H, p);
#if QUERIES
                total += queries_total(parts, p);
#endif
#if CORRECTED
                for (int q = 0; q < C; q++) {  // the largest of each column of H becomes 1 to 2
                    int top = 0;
                    for (int a = lane; a < S; a += 32) top = max(top, __float_as_int(fabsf(H[a * C + q])));
                    const int exponent = __reduce_max_sync(FULL, top) >> 23;
                    if (lane == 0) up[C + q] = exponent ? __int_as_float((254 - exponent) << 23) : 0.f;
                }
#endif
                if (lane == 0) {
                    job.losses[step] = total;
                    job.stop = total <= p.loss_tol;
                    job.ties = 0;
                }
            }
            __syncthreads();
            if (job.stop) {
                if (tid == 0) all_taken[job.task] = step;
                for (int later = step + 1 + tid; later < p.steps; later += TPB) job.losses[later] = job.losses[step];
                break;
            }
            if (step >= p.updates) break;
#if CORRECTED
            start_solutions(X, C, up + C, halves, false);
            __syncthreads();
            wrong = correct(system, rough, halves, X, codes, H, up + C, most, wrong, p.doublings);
#elif QUERIES
            eliminate_rest(U, inverse, H, X);
            solve_anchors(U, inverse, X, C, [&](int a, int q) { return X[(M + a) * XC + C + q]; });
            solve_rest<true>(U, inverse, X, C, C);
#else
            solve_anchors(U, inverse, X, C, [&](int a, int q) { return H[a * C + q]; });
            solve_rest<false>(U, inverse, X, 0, 2 * C);
#endif
            for (int i = tid; i < N; i += TPB) {
                float sum = 0.f;
                for (int q = 0; q < C; q++) sum -= X[i * XC + q] * X[i * XC + C + q];
                if (i >= M) {
                    float tail = X[i * XC + C + codes[i - M]];
                    for (int q = 0; q < C; q++) tail += X[i * XC + q] * H[(i - M) * C + q];
                    sum += 0.5f * tail;
                }
#if QUERIES
                else sum += 0.5f * d_degree[i];  // z . dL/dz
#endif
                d_degree[i] = fast_ratio(sum, degree[i]);
            }
            __syncthreads();
            for (int a = warp; a < S; a += WARPS) {
                constexpr int WIDE = (MP + SP) / 16 / 2 + (MP + SP) / 16 % 2;
                const int i = M + a;
                float value[WIDE];
                int top = 20 << 23;  // below this a row counts as zero
#pragma unroll
                for (int r = 0; r < WIDE; r++) {
                    const int c = lane + 32 * r, j = c < M ? c : c - MP + M;
                    value[r] = 0.f;
                    if ((c >= M && c < MP) || j >= N) continue;
                    const float sim = simA[a * N + j];
                    float pair = 0.f;
                    for (int q = 0; q < C; q++) pair += X[i * XC + C + q] * X[j * XC + q] + X[i * XC + q] * X[j * XC + C + q];
                    bool forth = sim >= threshold[i], back = sim >= threshold[j];
                    if (tied) forth = chosen(sim, i, j, threshold, cut), back = chosen(sim, j, i, threshold, cut);
                    const float outer = p.alpha * scale[i] * scale[j] * pair + d_degree[i] + d_degree[j];
                    value[r] = ((forth ? 0.5f : 0.f) + (back ? 0.5f : 0.f)) * slope(fmaxf(sim, 0.f), p.gamma) * outer;
                    top = max(top, __float_as_int(fabsf(value[r])));
                }
                // each row by a power of two of its own, so that its largest is about 4096
                const int exponent = __reduce_max_sync(FULL, top) >> 23;
                const float up = __int_as_float((266 - exponent) << 23), down = __int_as_float((exponent - 12) << 23);
                half_t* row = coefficient + a * GS;
#pragma unroll
                for (int r = 0; r < WIDE; r++) {
                    const int c = lane + 32 * r;
                    unsigned high, low;
                    split(up * value[r], 0.f, high, low);
                    if (c < MP + SP) row[c] = (half_t)high, row[LOW * GS + c] = (half_t)low;
                }
                if (lane == 0) unscale[a] = down / job.magnify;
            }
            __syncthreads();
        }
        if (DEPTH > 1) await_piece(barrier, turn);  // nothing may be on its way into memory that another block gets
        turn ^= 1;
        if (job.part + 1 == p.parts || job.stop) {
#if !CORRECTED
            solve_rest<false>(U, inverse, X, 0, C);
#endif
            for (int e = tid; e < N * C; e += TPB) all_z[(size_t)job.task * N * C + e] = X[(e / C) * XC + e % C];
            if (tid == 0) {
                all_converged[job.task] = job.stop;
                if (!job.stop) all_taken[job.task] = p.steps;
            }
        }
        for (int e = tid; e < S * DP; e += TPB) {
            const int a = e / DP, c = e % DP;
            all_anchors[(size_t)job.task * S * DP + e] = V[(c / CW * S + a) * CW + c % CW];
        }
        moments_are_stored();
        __syncthreads();
        if (tid == 0) {
            __threadfence();
            atomicExch(finished + job.task, job.part + 1);
        }
    }
}
