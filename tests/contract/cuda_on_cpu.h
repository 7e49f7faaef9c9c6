// Enough of CUDA to run the kernel of engines/fused_cuda as C++: the threads of a block take turns on one thread, and
// what lanes of a warp exchange goes through memory. Copies in the background happen when they are waited for; until
// then there is NaN. The device's own instructions (hardware.cu) are written again here.
#include <setjmp.h>
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>
using std::max;
using std::min;
#define __global__
#define __device__ static
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __CUDA_ARCH__ 900

struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }
struct Place { int x; };
static Place threadIdx;
alignas(128) float4 shared4[1 << 14];

// ---- threads ----------------------------------------------------------------------------------------------------------

static const int THREADS = WARPS * 32;
struct Thread {
    ucontext_t start;
    jmp_buf at;
    bool begun, done;
    int rounds;  // of exchanges so far
};
static Thread threads[THREADS];
static ucontext_t outside;
static int met[WARPS + 1], round_of[WARPS + 1];  // at a warp's meeting point, and the block's
static uint32_t given[WARPS][2][32];

static void go_to(int next) {
    Thread& now = threads[threadIdx.x];
    if (_setjmp(now.at)) return;
    threadIdx.x = next;
    if (threads[next].begun) _longjmp(threads[next].at, 1);
    threads[next].begun = true;
    setcontext(&threads[next].start);
}
static void meet_warp() {
    const int me = threadIdx.x, warp = me / 32, round = round_of[warp];
    if (++met[warp] == 32) met[warp] = 0, round_of[warp]++;
    while (round_of[warp] == round) go_to(warp * 32 + (threadIdx.x + 1) % 32);
}
static void __syncthreads() {
    meet_warp();
    const int round = round_of[WARPS];
    if (++met[WARPS] == THREADS) met[WARPS] = 0, round_of[WARPS]++;
    while (round_of[WARPS] == round) go_to((threadIdx.x + 1) % THREADS);
}
static void __syncwarp() { meet_warp(); }

// every lane's value, for all of them
static const uint32_t* exchange(uint32_t value) {
    const int warp = threadIdx.x / 32, turn = threads[threadIdx.x].rounds++ & 1;
    given[warp][turn][threadIdx.x % 32] = value;
    meet_warp();
    return given[warp][turn];
}
static uint32_t bits(float x) { uint32_t i; memcpy(&i, &x, 4); return i; }
static float number(uint32_t i) { float x; memcpy(&x, &i, 4); return x; }
static float __shfl_sync(unsigned, float x, int lane) { return number(exchange(bits(x))[lane & 31]); }
static float __shfl_xor_sync(unsigned, float x, int mask) { return number(exchange(bits(x))[(threadIdx.x ^ mask) % 32]); }
static unsigned __ballot_sync(unsigned, bool x) {
    const uint32_t* all = exchange(x);
    unsigned found = 0;
    for (int i = 0; i < 32; i++) found |= all[i] << i;
    return found;
}
static int __reduce_max_sync(unsigned, int x) {
    const int* all = (const int*)exchange(x);
    return *std::max_element(all, all + 32);
}
static int __reduce_min_sync(unsigned, int x) {
    const int* all = (const int*)exchange(x);
    return *std::min_element(all, all + 32);
}

// ---- arithmetic -------------------------------------------------------------------------------------------------------

static float __fmul_rn(float x, float y) { return x * y; }
static float __fadd_rn(float x, float y) { return x + y; }
static float __fsub_rn(float x, float y) { return x - y; }
static float __fdiv_rn(float x, float y) { return x / y; }
static float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static int __float_as_int(float x) { return bits(x); }
static float __int_as_float(int x) { return number(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static float rsqrtf(float x) { return 1.f / sqrtf(x); }
template <class T> static T __ldcg(const T* at) { return *at; }
static void __nanosleep(int) { abort(); }  // blocks run one after the other: nobody to wait for
static void __threadfence() {}
static int atomicAdd(int* at, int x) { int old = *at; *at += x; return old; }
static int atomicMax(int* at, int x) { int old = *at; *at = max(old, x); return old; }
static int atomicExch(int* at, int x) { int old = *at; *at = x; return old; }
static float fast_root(float x) { return sqrtf(x); }
static float fast_inverse_root(float x) { return 1.f / sqrtf(x); }
static float fast_ratio(float x, float y) { return x / y; }
static float fast_power(float x, float y) { return powf(x, y); }

// ---- halves and tensor cores ------------------------------------------------------------------------------------------

static half_t to_half(float x) { _Float16 h = (_Float16)x; half_t i; memcpy(&i, &h, 2); return i; }
static float from_half(half_t i) { _Float16 h; memcpy(&h, &i, 2); return (float)h; }
static unsigned pair(half_t x, half_t y) { return x | (unsigned)y << 16; }
static void split(float x, float y, unsigned& high, unsigned& low) {
    const half_t a = to_half(x), b = to_half(y);
    high = pair(a, b);
    low = pair(to_half(x - from_half(a)), to_half(y - from_half(b)));
}
static const half_t* given_rows[WARPS][2][32];
static const half_t** all_rows(const half_t* row) {
    const int warp = threadIdx.x / 32, turn = threads[threadIdx.x].rounds & 1;
    given_rows[warp][turn][threadIdx.x % 32] = row;
    exchange(0);
    return given_rows[warp][turn];
}
static void load_matrices(unsigned* to, const half_t* row) {
    const int lane = threadIdx.x % 32;
    const half_t** rows = all_rows(row);
    for (int m = 0; m < 4; m++) memcpy(to + m, rows[8 * m + lane / 4] + lane % 4 * 2, 4);
    meet_warp();
}
static void load_transposed(unsigned* to, const half_t* row) {
    const int lane = threadIdx.x % 32, t = lane % 4 * 2;
    const half_t** rows = all_rows(row);
    for (int m = 0; m < 4; m++) to[m] = pair(rows[8 * m + t][lane / 4], rows[8 * m + t + 1][lane / 4]);
    meet_warp();
}
static half_t half_of(const uint32_t* all, int row, int column) {
    return (half_t)(all[row * 4 + column / 2] >> column % 2 * 16);
}
static unsigned transposed(unsigned x) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
    const uint32_t* all = exchange(x);
    return pair(half_of(all, t, g), half_of(all, t + 1, g));
}
// sum (16 x 8) += a (16 x 8 DEEP) b (8 DEEP x 8), as fragments of 8 x 8: a[2 k] above a[2 k + 1]
template <int DEEP>
static void multiply(float* sum, const unsigned* a, const unsigned* b) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
    for (int k = 0; k < DEEP; k++) {
        uint32_t upper[32], lower[32], right[32];
        memcpy(upper, exchange(a[2 * k]), 128);
        memcpy(lower, exchange(a[2 * k + 1]), 128);
        memcpy(right, exchange(b[k]), 128);
        for (int q = 0; q < 8; q++)
            for (int o = 0; o < 2; o++) {
                const float y = from_half(half_of(right, t + o, q));
                sum[o] += from_half(half_of(upper, g, q)) * y;
                sum[2 + o] += from_half(half_of(lower, g, q)) * y;
            }
    }
}
static void multiply_add(float* sum, const unsigned* a, unsigned b0, unsigned b1) {
    const unsigned b[] = {b0, b1};
    multiply<2>(sum, a, b);
}
static void multiply_add(float* sum, unsigned a0, unsigned a1, unsigned b) {
    const unsigned a[] = {a0, a1};
    multiply<1>(sum, a, &b);
}

// ---- copies -----------------------------------------------------------------------------------------------------------

struct Copy { void *to; const void* from; int bytes; unsigned barrier; };
static std::vector<Copy> under_way;
static unsigned shared_at(const void* at) { return (unsigned)(uintptr_t)at; }
static void start_barriers(unsigned, unsigned) {}
static void begin_copy(void* to, const void* from, int bytes, unsigned barrier) {
    memset(to, 0xff, bytes);
    under_way.push_back({to, from, bytes, barrier});
}
static void start_piece(float* buffer, const float* piece, unsigned barrier) {
    if (threadIdx.x % 32 == 0) begin_copy(buffer, piece, BUFFER * 4, barrier);
}
template <int LAST> static void moments_are_there() {}
static void start_similarities(float* to, const float* rr, unsigned barrier) {
    if (threadIdx.x == 0) begin_copy(to, rr, M * MS * 4, barrier);
}
static void await_piece(unsigned barrier, int) {
    for (auto& copy : under_way)
        if (copy.barrier == barrier) memcpy(copy.to, copy.from, copy.bytes);
    under_way.erase(std::remove_if(under_way.begin(), under_way.end(), [&](Copy& copy) { return copy.barrier == barrier; }),
                    under_way.end());
}
static void await_similarities(unsigned barrier, int phase) { await_piece(barrier, phase); }
static void store_moments(float* piece, const float* buffer) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) memcpy(piece + PIECE, buffer + PIECE, MOMENTS * 4);
}
static void scratch_is_read() {}
static void moments_are_stored() {}
static void moments_are_seen() {}
