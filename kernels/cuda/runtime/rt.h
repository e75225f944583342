/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU runtime as the CUDA device needs it: devices, memory, streams,
 * events, graphs. Two implementations behind one header:
 *
 *   rt.cu      the CUDA runtime
 *   emulated_rt.cc  the host: "device memory" is host memory, and work of a
 *                   stream runs when somebody waits for it (see emulate.h), so
 *                   that a wait that was forgotten shows as a wrong result
 *
 * Which one a build has is decided by the CMake option GP_CUDA. Plans and
 * codecs (C) see this header and kernels' launchers (gpk_*), never CUDA's own.
 *
 * Errors: functions that return nothing only queue work; what the device said
 * about it comes from gp_rt_check or from the next wait. A device that failed
 * stays failed: the session ends, and sessions of other devices go on.
 *
 * Threads: any thread; one stream is used by one thread at a time. Functions
 * with a stream select its device for the calling thread themselves.
 * Test: tests/unit/test_cuda_rt.c
 */
#ifndef GP_RT_H
#define GP_RT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/base/status.h"

struct gp_rt_stream;
struct gp_rt_event;
struct gp_rt_graph;

/* Element types in device memory. */
enum gp_rt_type { GP_RT_F32 = 0, GP_RT_BF16 = 1 };
static inline size_t gp_rt_type_bytes(enum gp_rt_type t)
{
	return t == GP_RT_BF16 ? 2 : 4;
}

struct gp_rt_info {
	char name[256];        /* "NVIDIA H200", "emulated" */
	uint64_t memory, free; /* bytes */
	int multiprocessors;
	int major, minor; /* compute capability */
	bool emulated;
};

/* Whether this build's devices are emulated ones: `auto` never takes them. */
bool gp_rt_is_emulated(void);
/* Number of devices; 0 without a driver. */
int gp_rt_count(void);
/* GP_DEVICE: no such device, or it does not answer; the text says which there are. */
enum gp_status gp_rt_open(int device, struct gp_rt_info *out, struct gp_err *err);
/* GP_DEVICE with the device's words when something has failed that it does not get over. Any thread; waits for nothing. */
enum gp_status gp_rt_check(int device, struct gp_err *err);

/* Bytes of the device, and of them nobody's, or kept by this process for its next use; waits for nothing. GP_DEVICE. */
enum gp_status gp_rt_memory(int device, uint64_t *total, uint64_t *unused, struct gp_err *err);

/* On emulated devices the host's memory is theirs, too, from now on: for tests in which a plan of the CPU stands in for a
 * card's. Nothing on a card. */
void gp_rt_one_memory(void);
/* Device memory, aligned to 256 bytes, contents undefined. GP_NOMEM. */
enum gp_status gp_rt_alloc(int device, uint64_t bytes, void **out, struct gp_err *err);
/* Frees memory that nothing queued uses any more; other streams' work is not waited for. NULL is fine. */
void gp_rt_free(int device, void *p);
/* Host memory that copies do not have to stage, aligned to 64 bytes. GP_NOMEM. */
enum gp_status gp_rt_alloc_pinned(int device, uint64_t bytes, void **out, struct gp_err *err);
void gp_rt_free_pinned(int device, void *p);

/* `urgent`: its kernels go first where the device can choose. */
enum gp_status gp_rt_stream_new(int device, bool urgent, struct gp_rt_stream **out, struct gp_err *err);
void gp_rt_stream_free(struct gp_rt_stream *s); /* waits for it; NULL is fine */
int gp_rt_stream_device(const struct gp_rt_stream *s);
/* Until everything queued so far has been done. GP_DEVICE when any of it failed. */
enum gp_status gp_rt_stream_wait(struct gp_rt_stream *s, struct gp_err *err);

/* Queued. Both places stay valid and the host's unchanged (up), unread (down), until a wait. */
void gp_rt_copy_up(struct gp_rt_stream *s, void *device, const void *host, size_t bytes);
void gp_rt_copy_down(struct gp_rt_stream *s, void *host, const void *device, size_t bytes);
void gp_rt_copy(struct gp_rt_stream *s, void *to, const void *from, size_t bytes);
void gp_rt_fill(struct gp_rt_stream *s, void *p, int byte, size_t bytes);
/*
 * GP_RT_TICKETS counters of device memory, for kernels whose blocks count who comes last; zero whenever no kernel of the
 * stream runs: who uses one leaves it so. A graph has those of the stream that it was captured on, so graphs of one
 * stream never run at the same time.
 */
#define GP_RT_TICKETS 1024
uint32_t *gp_rt_tickets(struct gp_rt_stream *s);

/* An event is a point in a stream. */
enum gp_status gp_rt_event_new(int device, struct gp_rt_event **out, struct gp_err *err);
/* One that notes when it happened, which others do not: that has its price wherever it is recorded and waited for. */
enum gp_status gp_rt_event_new_timed(int device, struct gp_rt_event **out, struct gp_err *err);
void gp_rt_event_free(struct gp_rt_event *e);
void gp_rt_event_record(struct gp_rt_event *e, struct gp_rt_stream *s);
/* What is queued on `s` from here on begins after the event; one never recorded has happened. What failed on the event's
 * stream is told by the next wait for `s`. */
void gp_rt_stream_after(struct gp_rt_stream *s, struct gp_rt_event *e);
/* The calling thread sleeps until the event. GP_DEVICE as gp_rt_stream_wait. Here and above the stream that it was last
 * recorded on still exists. */
enum gp_status gp_rt_event_wait(struct gp_rt_event *e, struct gp_err *err);
/* Time between two timed events that were recorded and have happened, in nanoseconds. */
enum gp_status gp_rt_event_ns(struct gp_rt_event *from, struct gp_rt_event *to, uint64_t *ns, struct gp_err *err);

/*
 * From begin to end nothing that is queued on `s` runs; end gives it as a graph that can be launched often. Arguments
 * of kernels and addresses are as when captured; contents of memory are as at the launch. The thread must not wait in
 * between. Another stream is captured with `s` from where it comes after an event recorded there, and belongs to the
 * graph as a branch; `s` has to come after all of it before the end. Events of a capture mean nothing outside of it.
 */
/* Whatever end says, the stream is no longer being captured. It tells what failed in between, and the next wait does not;
 * what had failed before the capture is told by the next wait. */
enum gp_status gp_rt_capture_begin(struct gp_rt_stream *s, struct gp_err *err);
enum gp_status gp_rt_capture_end(struct gp_rt_stream *s, struct gp_rt_graph **out, struct gp_err *err);
void gp_rt_graph_launch(struct gp_rt_graph *g, struct gp_rt_stream *s);
void gp_rt_graph_free(struct gp_rt_graph *g); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
