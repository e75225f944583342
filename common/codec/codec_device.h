/* SPDX-License-Identifier: Apache-2.0
 *
 * A device other than the host on which the tensors of a codec may lie: a GPU.
 * It brings the stages that work there (the same ids and keys as the host's,
 * the same bytes and states but for s2fp8 and smaq: CODECS.md, "On a GPU") and
 * the copies between the two; payloads always lie on the host, what stages
 * remember where they want it. An instance is opened with it by
 * gp_codec_options.device; a tree with a stage that the device lacks runs on
 * the host behind one copy of its tensor, and byte stages always run there.
 *
 * Stages of a device queue their work on their site's stream: see the rules at
 * struct gp_codec_site. Not here: how a device does any of it
 * (kernels/cuda/codec/cuda_codec.h).
 *
 * Threads: the functions of a device from any; a site is its tree's.
 * Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_CODEC_DEVICE_H
#define GP_CODEC_DEVICE_H

#include "common/codec/codec_impl.h"

struct gp_codec_device;

/*
 * Where the stages of one tree work: stream and rooms that they share. The device's own struct. Rules for its stages:
 * - They work in the order in which they are called, on the site's stream alone. Nothing else uses the tensors.
 * - `encode` and `split` return with the answer and the length final. Bytes and tensors may still be on their way.
 * - `decode` and `join` have checked all that a host can see before they queue anything; `in` and `side` stay where
 *   they are until `finish`, which the tree calls before anybody else looks at tensors or bytes.
 * - What the device says when it fails is remembered by the site and told by `finish`; until then a stage may answer
 *   whatever does not lead the host outside its buffers, and `decode` and `join` may return GP_DEVICE.
 */
struct gp_codec_site;

struct gp_codec_device_ops {
	/* The stage with that id; NULL: this device has none. */
	const struct gp_codec_ops *(*codec)(uint16_t id);

	/* A site whose shared room takes payloads of that many bytes, and the bytes that it takes. */
	uint64_t (*site_bytes)(uint64_t payload);
	enum gp_status (*site_open)(const struct gp_codec_device *m, uint64_t payload, struct gp_codec_site **out,
				    struct gp_err *err);
	void (*site_close)(struct gp_codec_site *p); /* waits; NULL is fine */

	/* Device memory for a tensor, aligned to 256 bytes. GP_NOMEM. */
	enum gp_status (*alloc)(struct gp_codec_site *p, uint64_t bytes, void **out, struct gp_err *err);
	void (*free)(struct gp_codec_site *p, void *tensor); /* NULL is fine */
	/* Host memory that the device copies to and from at full speed, aligned to 64 bytes. GP_NOMEM. */
	enum gp_status (*alloc_host)(const struct gp_codec_device *m, uint64_t bytes, void **out, struct gp_err *err);
	void (*free_host)(const struct gp_codec_device *m, void *p); /* NULL is fine */

	/* Queued: host to device, device to host, device to device. Host memory of any kind. */
	void (*up)(struct gp_codec_site *p, void *to, const void *from, size_t bytes);
	void (*down)(struct gp_codec_site *p, void *to, const void *from, size_t bytes);
	void (*across)(struct gp_codec_site *p, void *to, const void *from, size_t bytes);
	/* Everything queued has been done. GP_DEVICE: some of it failed, since the site was opened. */
	enum gp_status (*finish)(struct gp_codec_site *p, struct gp_err *err);
};

struct gp_codec_device {
	const struct gp_codec_device_ops *ops;
	int device;
};

/* For callers of codecs, with `m` NULL for the host: memory for payloads, freed with the same `m`. */
enum gp_status gp_codec_alloc_payload(const struct gp_codec_device *m, uint64_t bytes, uint8_t **out,
				      struct gp_err *err);
void gp_codec_free_payload(const struct gp_codec_device *m, uint8_t *p);

/* For drivers of codecs: bytes from..from + bytes of a region to the host, and back, wherever it lies; `m` and `p` are of
 * the tree whose stage it is. They wait. GP_DEVICE. */
enum gp_status gp_codec_region_get(const struct gp_codec_device *m, struct gp_codec_site *p,
				   const struct gp_codec_region *r, size_t from, void *out, size_t bytes,
				   struct gp_err *err);
enum gp_status gp_codec_region_put(const struct gp_codec_device *m, struct gp_codec_site *p,
				   const struct gp_codec_region *r, const void *in, struct gp_err *err);
/* Copies the same bytes to `backup`, or back. On a device this is queued, and comes before the next pass. */
void gp_codec_region_back_up(const struct gp_codec_device *m, struct gp_codec_site *p, const struct gp_codec_region *r,
			     size_t from, size_t bytes, bool back);

#endif
