// Prints what the vendor's occupancy calculator says for each point on stdin; with the header of CUDA 13.5 it
// made tests/data/occupancy/points.csv.
//   g++ -w -I/usr/local/cuda/include occupancy_oracle.cpp -o oracle && ./oracle < points
// In:  major minor shared_per_sm shared_per_cta max_threads_per_sm reserved registers threads shared barriers
// Out: active_ctas limit_registers limit_shared limit_warps limit_ctas limit_barriers
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_occupancy.h>

int main() {
    int major, minor, threads_per_sm, reserved, registers, threads, barriers;
    long shared_per_sm, shared_per_cta, shared;
    while (scanf("%d %d %ld %ld %d %d %d %d %ld %d", &major, &minor, &shared_per_sm, &shared_per_cta, &threads_per_sm,
                 &reserved, &registers, &threads, &shared, &barriers) == 10) {
        cudaOccDeviceProp device;
        cudaOccFuncAttributes kernel;
        cudaOccDeviceState state;
        cudaOccResult result;
        memset(&device, 0, sizeof device);
        memset(&kernel, 0, sizeof kernel);
        memset(&state, 0, sizeof state);
        memset(&result, 0, sizeof result);
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = threads_per_sm;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = shared_per_sm;
        device.sharedMemPerBlockOptin = shared_per_cta;
        device.reservedSharedMemPerBlock = reserved;
        device.numSms = 1;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared_per_cta;
        kernel.numBlockBarriers = barriers;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared) != 0) return 1;
        printf("%d %d %d %d %d %d\n", result.activeBlocksPerMultiprocessor, result.blockLimitRegs,
               result.blockLimitSharedMem, result.blockLimitWarps, result.blockLimitBlocks, result.blockLimitBarriers);
    }
}
