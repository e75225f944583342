/* SPDX-License-Identifier: Apache-2.0
 *
 * The first bytes that each end of a link sends: what program it is and which
 * versions of the protocol it speaks. Pure functions: no I/O, no allocation.
 * Normative description: proto/PROTOCOL.md section 2.
 *
 * Threads: any (pure functions). Test: tests/unit/test_frame.c
 */
#ifndef GP_PREFACE_H
#define GP_PREFACE_H

#include <stddef.h>

#include "common/base/status.h"

#define GP_PROTO_VERSION 2
#define GP_PREFACE_BYTES 16

void gp_preface_write(uint8_t out[GP_PREFACE_BYTES]);
/* *version: the newest that both ends speak. GP_PROTO when the magic is not ours or there is none; the text says
 * which. GP_DAMAGED when this was a preface of ours before some of its bits changed. */
enum gp_status gp_preface_read(const uint8_t in[GP_PREFACE_BYTES], uint16_t *version, struct gp_err *err);

/* They differ in a bit or two: damage rather than another protocol. */
bool gp_nearly_same(const uint8_t *a, const uint8_t *b, size_t bytes);

#endif
