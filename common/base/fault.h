/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault switches: GP_FAULT=alloc:17,write:3 fails the Nth event of a kind,
 * once, in builds with GP_FAULTS defined (debug and sanitizer presets). In
 * release builds every check is the constant false. precision:N fails nothing: in
 * trials of precisions all but fp32 are said to take N % of its time.
 *
 * Threads: any; the counters are atomic. Test: tests/unit/test_mem.c
 */
#ifndef GP_FAULT_H
#define GP_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum gp_fault_kind {
	GP_FAULT_ALLOC,
	GP_FAULT_WRITE,
	GP_FAULT_FSYNC,
	GP_FAULT_SEND,
	GP_FAULT_DEVICE,
	GP_FAULT_READ,
	GP_FAULT_PRODUCT,   /* a matrix product of an emulated GPU */
	GP_FAULT_PRECISION, /* no event, but a number: common/graph/precision_trial.h */
	GP_FAULT_KINDS
};

#ifdef GP_FAULTS
enum { gp_faults_built_in = true };
/* What a value of GP_FAULT says: the number of the event that fails, 0 for none. False: it is not of that form. */
bool gp_fault_parse(const char *spec, uint64_t nth[GP_FAULT_KINDS]);
/* True when this event is the one that has to fail. Thread-safe. */
bool gp_fault_hit(enum gp_fault_kind kind);
/* The number of a kind that has no events. */
uint64_t gp_fault_number(enum gp_fault_kind kind);
/* Tests: fail the nth event from now (1 = the next), 0 = none; restarts counting. */
void gp_fault_arm(enum gp_fault_kind kind, uint64_t nth);
#else
enum { gp_faults_built_in = false };
static inline bool gp_fault_parse(const char *spec, uint64_t nth[GP_FAULT_KINDS])
{
	(void)spec;
	(void)nth;
	return false;
}
static inline bool gp_fault_hit(enum gp_fault_kind kind)
{
	(void)kind;
	return false;
}
static inline uint64_t gp_fault_number(enum gp_fault_kind kind)
{
	(void)kind;
	return 0;
}
static inline void gp_fault_arm(enum gp_fault_kind kind, uint64_t nth)
{
	(void)kind;
	(void)nth;
}
#endif

#endif
