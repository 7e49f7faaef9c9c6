// Solving the system of the adaptive manifold. Compiled after graph.cuh.

// LU of a block of four by four, without pivots; the diagonal becomes reciprocals of pivots
__device__ __forceinline__ void factor_block(Four (&m)[4], real* to) {
#pragma unroll
    for (int a = 0; a < 4; a++) {
        m[a].at[a] = 1 / m[a].at[a];
#pragma unroll
        for (int b = a + 1; b < 4; b++) {
            m[b].at[a] *= m[a].at[a];
#pragma unroll
            for (int c = a + 1; c < 4; c++) m[b].at[c] -= m[b].at[a] * m[a].at[c];
        }
    }
#pragma unroll
    for (int a = 0; a < 4; a++) ((Four*)to)[a] = m[a];
}

// LU of the system in place, but for the blocks on the diagonal. No pivots: the system is similar to I - alpha D^-1 W,
// whose diagonal is dominant.
__device__ void factor(const Manifold& g) {
    if (thread() == 0) {
        Four block[4];
#pragma unroll
        for (int a = 0; a < 4; a++) block[a] = *(const Four*)(g.system + a * LD);
        factor_block(block, g.diagonal);
    }
    __syncthreads();
    for (int first = 0; first < PADDED - 4; first += 4) {
        const int next = first + 4, rest = PADDED - next, blocks = rest / 4;
        const Four* m = (const Four*)(g.diagonal + first * 4);
        for (int e = thread(); e < 2 * rest; e += blockDim.x) {
            if (e < rest) {  // a column of U
                real x[4], *at = g.system + first * LD + next + e;
#pragma unroll
                for (int a = 0; a < 4; a++) {
                    x[a] = at[a * LD];
#pragma unroll
                    for (int b = 0; b < a; b++) x[a] -= m[a].at[b] * x[b];
                    at[a * LD] = x[a];
                }
            } else {  // a row of L
                Four* at = (Four*)(g.system + (next + e - rest) * LD + first);
                Four row = *at;
#pragma unroll
                for (int a = 0; a < 4; a++) {
#pragma unroll
                    for (int b = 0; b < a; b++) row.at[a] -= row.at[b] * m[b].at[a];
                    row.at[a] *= m[a].at[a];
                }
                *at = row;
            }
        }
        __syncthreads();
        const float per_row = 1.f / blocks;
        for (int e = thread(); e < blocks * blocks; e += blockDim.x) {
            const int down = (int)((e + 0.5f) * per_row), top = next + 4 * down, column = next + 4 * (e - down * blocks);
            Four upper[4], value[4];
#pragma unroll
            for (int a = 0; a < 4; a++) upper[a] = *(const Four*)(g.system + (first + a) * LD + column);
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const Four lower = *(const Four*)(g.system + (top + r) * LD + first);
                value[r] = *(const Four*)(g.system + (top + r) * LD + column);
#pragma unroll
                for (int a = 0; a < 4; a++)
#pragma unroll
                    for (int b = 0; b < 4; b++) value[r].at[b] -= lower.at[a] * upper[a].at[b];
                *(Four*)(g.system + (top + r) * LD + column) = value[r];
            }
            if (e == 0) factor_block(value, g.diagonal + next * 4);  // the next block on the diagonal
        }
        __syncthreads();
    }
}

// A warp solves with one factor, from block `first` on (downwards, or upwards from the last): found from given (PADDED
// each), which is changed. UPPER: the factor U, whose pivots count, else L; TURNED: its transpose.
template <bool UPPER, bool TURNED>
__device__ __forceinline__ void substitute(const Manifold& g, real* given, real* found, int first) {
    constexpr bool DOWN = UPPER == TURNED;
    const int lane = thread() % LANES;
    for (int block = DOWN ? first : FOURS - 1; DOWN ? block < FOURS : block >= 0; block += DOWN ? 1 : -1) {
        const int row = 4 * block;
        const Four* m = (const Four*)(g.diagonal + 16 * block);
        real values[SHARE], factors[SHARE][4];
#pragma unroll
        for (int r = 0; r < SHARE; r++) {
            const int i = place(lane, r);
            if (DOWN ? i < row + 4 || i >= PADDED : i >= row) continue;
            values[r] = given[i];
#pragma unroll
            for (int b = 0; b < 4; b++) factors[r][b] = g.system[TURNED ? (row + b) * LD + i : i * LD + row + b];
        }
        Four x = *(const Four*)(given + row);
#pragma unroll
        for (int step = 0; step < 4; step++) {
            const int a = DOWN ? step : 3 - step;
#pragma unroll
            for (int before = 0; before < step; before++) {
                const int b = DOWN ? before : 3 - before;
                x.at[a] -= (TURNED ? m[b].at[a] : m[a].at[b]) * x.at[b];
            }
            if (UPPER) x.at[a] *= m[a].at[a];
        }
        *(Four*)(found + row) = x;
#pragma unroll
        for (int r = 0; r < SHARE; r++) {
            const int i = place(lane, r);
            if (DOWN ? i < row + 4 || i >= PADDED : i >= row) continue;
#pragma unroll
            for (int b = 0; b < 4; b++) values[r] -= factors[r][b] * x.at[b];
            given[i] = values[r];
        }
        __syncwarp();
    }
}

// Z = the columns of the system's inverse that belong to centroids, a warp for each
__device__ void propagate(const Manifold& g) {
    for (int q = thread() / LANES; q < C; q += WARPS) {
        real *z = g.z + q * PADDED, *half = g.scratch + q * PADDED;
        for (int i = thread() % LANES; i < PADDED; i += LANES) z[i] = i == N + q, half[i] = 0;
        __syncwarp();
        substitute<false, false>(g, z, half, N / 4);
        substitute<true, false>(g, half, z, 0);
    }
    __syncthreads();
}
