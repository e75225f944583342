/* SPDX-License-Identifier: Apache-2.0
 *
 * One tensor of a safetensors file through codecs, on one thread and without a
 * link: payload size, error, speed. What `gpclient codec roundtrip` and
 * `compare` print.
 *
 * Threads: any, one at a time. Test: tests/unit/test_cmd_codec.c
 */
#ifndef GP_CLIENT_CODEC_TRIP_H
#define GP_CLIENT_CODEC_TRIP_H

#include "common/codec/codec.h"
#include "common/store/safetensors.h"

/* Elements that a codec gets. */
struct gp_trip_part {
	struct gp_shape shape;
	uint64_t count;
	float *x; /* gp_alloc_aligned, or NULL */
};

/* A tensor of 4 dimensions lies in a file as PyTorch has it, (N,C,H,W), and is coded as it would be on the link,
 * (N,H,W,C); or it lies in the file like that already. */
struct gp_trip_tensor {
	struct gp_st_file *file;
	const struct gp_st_tensor *tensor; /* as in the file */
	struct gp_shape shape;             /* as coded */
	bool turned;                       /* the two differ */
	float *x, *y;                      /* as coded; as the last codec that ran decoded it */
	float *scratch;
	/* After gp_trip_drop_padding: the positions alone, one after another (rows, features), and, for codecs that work
	 * along a sequence, all up to the longest text's end (N, longest, features). */
	struct gp_trip_part rows, sequences;
	const struct gp_st_tensor *length; /* of each text; NULL: as in the file */
};

#define GP_TRIP_MEASURE_NS 60000000u /* for speeds that are worth printing with three digits */

struct gp_trip {
	uint64_t payload_bytes, elements;
	/* Errors and size of one pass, the first behind the warm-up of a fresh instance, and what was skipped or raw in
	 * it. Errors are over the elements that are finite; the others travel bit for bit. */
	double rel_err, max_err;           /* L2 norm of the error over that of the tensor; largest */
	double cosine;                     /* between both; 1 when they are equal, also where they are 0 */
	bool fell_back;                    /* travelled raw, or in part */
	bool skipped[GP_CODEC_MAX_STAGES]; /* by byte stage: did not pay */
	uint64_t encode_ns, decode_ns;     /* the fastest repetition */
};

/* GP_INVALID names the file and the tensors it has. On failure `t` needs no close. */
enum gp_status gp_trip_open(const char *path, const char *name, bool channels_last, struct gp_trip_tensor *t,
			    struct gp_err *err);
void gp_trip_close(struct gp_trip_tensor *t);
/*
 * For a tensor (N,S,F) of texts, of which text n has length[n] positions: codecs get it from here on as chunks travel
 * without their padding (PROTOCOL.md 4.4), those along a sequence with zeros there, and bits are for each element of the
 * positions. (The counts that travel before a payload, 4 bytes a text, are not among them.) Codecs that remember a value
 * for each place (ef, delta) take the whole tensor still, and their errors are of all of it. `length` stays until t is
 * closed. *dropped false, and nothing changes: the tensor is none of N such texts.
 */
enum gp_status gp_trip_drop_padding(struct gp_trip_tensor *t, const struct gp_st_tensor *length, bool *dropped,
				    struct gp_err *err);
/* Codecs that remember see the tensor `warmup` times before anything is measured; others are not held up. With a
 * warm-up `delta` codes differences to the same samples. Speeds are taken over at least `measure_ns`, and three passes. */
enum gp_status gp_trip_run(struct gp_trip_tensor *t, const struct gp_codec_spec *spec, int warmup, uint64_t measure_ns,
			   struct gp_trip *out, struct gp_err *err);
/* The decoded tensor in the layout that the file has. Valid until the next call for t. */
const float *gp_trip_decoded(struct gp_trip_tensor *t);

double gp_trip_bits(const struct gp_trip *t);        /* per element */
double gp_trip_encode_rate(const struct gp_trip *t); /* G elements/s */
double gp_trip_decode_rate(const struct gp_trip *t);
/*
 * Bits per second of the link at which sending the payload, with encoding before and decoding after it, takes as long as
 * sending 32 bits per element: below, the codec pays. 0 where the payload is no shorter.
 */
double gp_trip_break_even(const struct gp_trip *t);

#endif
