// Enough of CUDA to run kernels of one block to a task as C++: the threads of a block are threads, blocks run one after the
// other. No warps: kernels that exchange values between lanes need cuda_on_cpu.h.
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
static std::atomic<int> arrived, phase, any;
static void meet() {
    const int now = phase;
    if (++arrived == blockDim.x) arrived = 0, phase++;
    else while (phase == now) std::this_thread::yield();
}
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
