// Everything that is written in the device's own instructions; kernel.cu includes it after its sizes.

// Roots and ratios by the fast instructions alone, without their care for the tiniest numbers
__device__ __forceinline__ float fast_root(float x) {
    asm("sqrt.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}
__device__ __forceinline__ float fast_inverse_root(float x) {
    asm("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}
__device__ __forceinline__ float fast_ratio(float x, float y) {
    asm("div.approx.ftz.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
    return x;
}
// x^y for x > 0 by the fast instructions, to some 1e-6: cosines are near enough to 1 for it
__device__ __forceinline__ float fast_power(float x, float y) {
    asm("lg2.approx.ftz.f32 %0, %0;" : "+f"(x));
    x *= y;
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

// ---- halves and tensor cores. Lane 4 g + t has of a tile: row g (and g + 8), columns 2 t and 2 t + 1 ------------------

__device__ __forceinline__ unsigned shared_at(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

// two numbers as two pairs of halves, high and low
__device__ __forceinline__ void split(float x, float y, unsigned& high, unsigned& low) {
    float a, b;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
    asm("{.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;}" : "=f"(a), "=f"(b) : "r"(high));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(y - b), "f"(x - a));
}

// four matrices of 8 x 8 halves; lanes 8 m to 8 m + 7 name the rows of matrix m
__device__ __forceinline__ void load_matrices(unsigned* to, const half_t* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_at(row)));
}
__device__ __forceinline__ void load_transposed(unsigned* to, const half_t* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_at(row)));
}
__device__ __forceinline__ unsigned transposed(unsigned x) {
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(x));
    return x;
}

// sum (16 x 8) += a (16 x 16) b (16 x 8)
__device__ __forceinline__ void multiply_add(float* sum, const unsigned* a, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// sum (16 x 8) += a (16 x 8) b (8 x 8)
__device__ __forceinline__ void multiply_add(float* sum, unsigned a0, unsigned a1, unsigned b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(b));
}

// A piece with its moments into shared memory, in the background, and moments back; `barrier` is the warp's own.
#if __CUDA_ARCH__ >= 900
// `piece` is the warp's own barrier
__device__ __forceinline__ void start_barriers(unsigned piece, unsigned similarities) {
    if (threadIdx.x % 32 == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(piece));
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(similarities));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncwarp();
}
__device__ __forceinline__ void bulk_load(float* to, const float* from, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_at(to)),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void start_piece(float* buffer, const float* piece, unsigned barrier) {
    if (threadIdx.x % 32) return;
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // what was stored from this buffer has left it
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(BUFFER * 4) : "memory");
    bulk_load(buffer, piece, BUFFER * 4, barrier);
}
// All moments that the warp has stored but the last so many are in memory. Dear: it empties the first-level cache.
template <int LAST>
__device__ __forceinline__ void moments_are_there() {
    if (threadIdx.x % 32 == 0) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(LAST > 0 ? LAST : 0) : "memory");
}
__device__ __forceinline__ void await_piece(unsigned barrier, int phase) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(
            barrier),
        "r"(phase)
        : "memory");
}
__device__ __forceinline__ void store_moments(float* piece, const float* buffer) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x % 32) return;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(piece + PIECE),
                 "r"(shared_at(buffer + PIECE)),
                 "n"(MOMENTS * 4)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Similarities of points that stay, to where the system is going to be.
__device__ __forceinline__ void start_similarities(float* to, const float* rr, unsigned barrier) {
    if (threadIdx.x) return;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(M * MS * 4) : "memory");
    bulk_load(to, rr, M * MS * 4, barrier);
}
__device__ __forceinline__ void await_similarities(unsigned barrier, int phase) { await_piece(barrier, phase); }
// before a copy overwrites what was written and read here
__device__ __forceinline__ void scratch_is_read() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// in global memory, for whoever goes on with the task
__device__ __forceinline__ void moments_are_stored() {
    asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async;" ::: "memory");
}
// and whoever goes on sees them
__device__ __forceinline__ void moments_are_seen() { asm volatile("fence.proxy.async;" ::: "memory"); }
#else
__device__ __forceinline__ void start_barriers(unsigned, unsigned) {}
__device__ __forceinline__ void start_similarities(float* to, const float* rr, unsigned) {
    for (int e = threadIdx.x * 4; e < M * MS; e += 4 * TPB)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(to + e)), "l"(rr + e));
    asm volatile("cp.async.commit_group;");
}
__device__ __forceinline__ void await_similarities(unsigned, int) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
}
__device__ __forceinline__ void scratch_is_read() {}
__device__ __forceinline__ void moments_are_stored() {}
__device__ __forceinline__ void moments_are_seen() {}
template <int LAST>
__device__ __forceinline__ void moments_are_there() {}
__device__ __forceinline__ void start_piece(float* buffer, const float* piece, unsigned) {
    for (int e = threadIdx.x % 32 * 4; e < BUFFER; e += 128)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(buffer + e)), "l"(piece + e));
    asm volatile("cp.async.commit_group;");
}
__device__ __forceinline__ void await_piece(unsigned, int) { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void store_moments(float* piece, const float* buffer) {
    __syncwarp();
    for (int e = PIECE + threadIdx.x % 32 * 4; e < BUFFER; e += 128) *(float4*)(piece + e) = *(const float4*)(buffer + e);
}
#endif
