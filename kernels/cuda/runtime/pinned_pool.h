/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinned host memory that sessions have given back, kept for the next ones.
 * To take such memory from CUDA, or to give it back there, stalls the work of
 * everybody on the card; so blocks come in few sizes (gp_pinned_bytes), and one that
 * is given back waits here, up to GP_PINNED_KEPT_BYTES of them together and
 * GP_PINNED_KEPT_NS each; the end of the process gives back the rest. A
 * block goes only to users of the card for which it was made: what became of another card does not concern it.
 * rt.cu is the only user of a card's; the emulated device takes memory from the host and keeps none.
 *
 *   p = gp_pinned_take(device, size)         or NULL: whoever asks takes a new block, and tells: gp_pinned_add
 *   gp_pinned_keep(p, now)                   false: the block is not to be kept, and is forgotten
 *   while ((p = gp_pinned_old(device, now))) what has to go, now forgotten: given back to CUDA
 *
 * Threads: any. Test: tests/unit/test_cuda_calls.cc
 */
#ifndef GP_PINNED_POOL_H
#define GP_PINNED_POOL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GP_PINNED_KEPT_BYTES ((uint64_t)1 << 29)
#define GP_PINNED_KEPT_NS    ((uint64_t)600 * 1000 * 1000 * 1000)

/* What a block of at least so many bytes takes: up to an eighth more, and whole pages. Beyond 2^62 bytes as they are. */
uint64_t gp_pinned_bytes(uint64_t bytes);

/* A block of exactly that size that waits; it is in use from now on. NULL: there is none. */
void *gp_pinned_take(int device, uint64_t size);
/* A new block in use. false: there is no memory to note it. */
bool gp_pinned_add(int device, void *block, uint64_t size);
bool gp_pinned_keep(void *block, uint64_t now_ns);
/* One that waits longer than it may, or is the oldest of too many; of that device, or of any (-1). NULL: there is none. */
void *gp_pinned_old(int device, uint64_t now_ns);
/* Any that waits, of that device. */
void *gp_pinned_any(int device);
/* Bytes of this process's pinned memory: in use, and kept for the next session. */
void gp_pinned_usage(uint64_t *used, uint64_t *kept);

#ifdef __cplusplus
}
#endif
#endif
