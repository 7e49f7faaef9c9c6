// Enough of CUDA to run kernels of one block to a task as C++: the threads of a block are threads, blocks run one after the
// other. Warps have LANES threads, by default one; kernels that use more of a warp need cuda_on_cpu.h.
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>
#define __global__
#define __device__ static
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __syncthreads() meet()
struct Place { int x; };
static thread_local Place threadIdx, blockIdx;
static Place blockDim;
#ifndef LANES
#define LANES 1
#endif
struct Meeting {
    std::atomic<int> arrived, phase;
    void wait_for(int threads) {
        const int now = phase;
        if (++arrived == threads) arrived = 0, phase++;
        else while (phase == now) std::this_thread::yield();
    }
};
static Meeting whole_block, warp_meetings[1024];
static std::atomic<int> any;
static void meet() { whole_block.wait_for(blockDim.x); }
static void __syncwarp() { warp_meetings[threadIdx.x / LANES].wait_for(LANES); }
// What all lanes give, until the exchange after the next
template <class Value> static const Value* exchange(Value value) {
    static Value given[1024][2][LANES];
    static thread_local int turn;
    turn = !turn;
    Value* all = given[threadIdx.x / LANES][turn];
    all[threadIdx.x % LANES] = value;
    __syncwarp();
    return all;
}
template <class Value> static Value __shfl_xor_sync(unsigned, Value value, int mask) {
    return exchange(value)[threadIdx.x % LANES ^ mask];
}
static unsigned __ballot_sync(unsigned, bool holds) {
    const int* all = exchange<int>(holds);
    unsigned found = 0;
    for (int lane = 0; lane < LANES; lane++) found |= (unsigned)all[lane] << lane;
    return found;
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
static float rsqrtf(float x) { return 1.f / sqrtf(x); }
static float __fdividef(float x, float y) { return x / y; }
static int __syncthreads_or(int one) {
    if (one) any = 1;
    meet();
    const int found = any;
    meet();
    if (threadIdx.x == 0) any = 0;
    meet();
    return found;
}
static float __fadd_rn(float x, float y) { return x + y; }
static float __fsub_rn(float x, float y) { return x - y; }
static float __fmul_rn(float x, float y) { return x * y; }
static float __fdiv_rn(float x, float y) { return x / y; }
static float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
alignas(64) double memory[1 << 17];
