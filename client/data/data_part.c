/* SPDX-License-Identifier: Apache-2.0
 *
 * See data_part.h. Test: tests/unit/test_data_part.c
 */
#include "client/data/data_part.h"

#include <string.h>

#include "client/data/data_internal.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/rng.h"

enum { DEAL, URN };              /* streams */
#define UNIT ((uint64_t)1 << 20) /* the weight of one sample in the urn */

static bool parse_whole(struct gp_text text, int64_t *out)
{
	const struct gp_value_form form = {.type = GP_VALUE_INT, .min = 1, .max = GP_PARTS_MOST};
	char why[GP_VALUE_WHY];
	union gp_value v;
	const bool ok = gp_value_parse(&form, text, &v, why);
	if (ok)
		*out = v.whole;
	return ok;
}

enum gp_status gp_data_part_read(struct gp_spec *s, struct gp_data_part *out, struct gp_err *err)
{
	struct gp_data_part p = {.part = 1, .parts = 1};
	struct gp_text value, rest, first, other;
	const bool given = gp_spec_given(s, "part", &value);
	if (given) {
		rest = value;
		if (!gp_text_cut(&rest, '/', &first) || !rest.at || !parse_whole(first, &p.part) ||
		    !parse_whole(rest, &p.parts) || p.part > p.parts)
			return gp_spec_refuse(s, "part", value, "I/N, part I of N, as 1/3, 2/3 and 3/3 are", err);
	}
	GP_TRY(gp_spec_real(s, "dirichlet", 0.001, 1000, &p.dirichlet, err));
	GP_TRY(gp_spec_int(s, "part-seed", 0, INT64_MAX, &p.seed, err));
	for (int i = 0; !given && i < 2; i++) {
		const char *key = i == 0 ? "dirichlet" : "part-seed";
		if (gp_spec_given(s, key, &other))
			return gp_spec_refuse(s, key, other, "of use without part=I/N", err);
	}
	*out = p;
	return GP_OK;
}

enum gp_status gp_data_part_check(const struct gp_dataset *d, const struct gp_data_part *p, struct gp_err *err)
{
	if (p->dirichlet > 0 && (d->class->draw || d->values))
		GP_FAIL(err, GP_USAGE,
			"dataset %s: its samples have no classes, which dirichlet= divides; leave it out",
			d->class->info.name);
	return GP_OK;
}

/* --- whose a sample is ------------------------------------------------------------------------------------------ */

/* All of one class, while its samples come. */
struct urn {
	uint32_t *owner; /* of each of them, in their order */
	uint32_t count;
};

/* The upper half of bits * all, for `all` below 2^53: no term overflows. */
static uint64_t scaled(uint64_t bits, uint64_t all)
{
	const uint64_t b1 = bits >> 32, b0 = (uint32_t)bits, a1 = all >> 32, a0 = (uint32_t)all;
	const uint64_t low = (b0 * a0 >> 32) + (uint32_t)(b1 * a0) + (uint32_t)(b0 * a1);
	return b1 * a1 + (b1 * a0 >> 32) + (b0 * a1 >> 32) + (low >> 32);
}

static uint32_t draw_owner(const struct gp_data_part *p, const struct urn *urn, uint32_t sample)
{
	const uint64_t each = (uint64_t)(p->dirichlet * (double)UNIT + 0.5), first = each * (uint64_t)p->parts;
	uint32_t w[4];
	gp_rng_block((uint64_t)p->seed, gp_rng_stream(GP_RNG_PARTS, URN), sample, w);
	const uint64_t bits = (uint64_t)w[1] << 32 | w[0], all = first + UNIT * urn->count;
	const uint64_t at = scaled(bits, all);
	return at < first ? (uint32_t)(at / each) : urn->owner[(at - first) / UNIT];
}

static enum gp_status new_urns(const struct gp_dataset *d, uint32_t *owner, struct urn **out, struct gp_err *err)
{
	void *memory;
	GP_TRY(gp_alloc_array(&memory, (size_t)d->classes, sizeof **out, err));
	struct urn *urns = memory;
	*out = urns;
	for (uint32_t i = 0; i < d->samples; i++) {
		const int32_t label = d->class->label(d, i);
		if (label < 0 || label >= d->classes)
			GP_FAIL(err, GP_INVALID, "dataset %s: sample %u is of class %d, and there are %d",
				d->class->info.name, i, (int)label, d->classes);
		urns[label].count++;
	}
	for (int c = 0; c < d->classes; c++) {
		urns[c].owner = owner;
		owner += urns[c].count;
		urns[c].count = 0;
	}
	return GP_OK;
}

/* owner[sample], from 0 on; `room` has as many. */
static enum gp_status divide_classes(const struct gp_dataset *d, const struct gp_data_part *p, uint32_t *owner,
				     uint32_t *room, struct gp_err *err)
{
	struct urn *urns = NULL;
	const enum gp_status status = new_urns(d, room, &urns, err);
	for (uint32_t i = 0; status == GP_OK && i < d->samples; i++) {
		struct urn *urn = &urns[d->class->label(d, i)];
		owner[i] = draw_owner(p, urn, i);
		urn->owner[urn->count++] = owner[i];
	}
	gp_free(urns);
	return status;
}

static void deal_out(const struct gp_data_part *p, uint32_t samples, uint32_t *owner, uint32_t *room)
{
	gp_rng_permutation((uint64_t)p->seed, gp_rng_stream(GP_RNG_PARTS, DEAL), room, samples);
	for (uint32_t i = 0; i < samples; i++)
		owner[room[i]] = i % (uint32_t)p->parts;
}

/* --- the part --------------------------------------------------------------------------------------------------- */

static void tell(const struct gp_dataset *d, const struct gp_data_part *p, uint32_t of)
{
	enum { CLASSES_TOLD = 20 };
	uint32_t count[CLASSES_TOLD] = {0};
	char text[16 * CLASSES_TOLD] = "";
	size_t len = 0;
	const bool classes = p->dirichlet > 0 && d->classes <= CLASSES_TOLD;
	for (uint32_t i = 0; classes && i < d->samples; i++)
		count[d->class->label(d, gp_dataset_source(d, i))]++;
	for (int c = 0; classes && c < d->classes; c++)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%u", c ? ", " : "; by class ", count[c]);
	gp_log(data, GP_LOG_INFO, "dataset %s: part %lld of %lld has %u of %u samples%s", d->class->info.name,
	       (long long)p->part, (long long)p->parts, d->samples, of, text);
}

static void keep(struct gp_dataset *d, const struct gp_data_part *p, const uint32_t *owner, uint32_t *kept)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < d->samples; i++)
		if (owner[i] == (uint32_t)p->part - 1)
			kept[count++] = i;
	d->kept = kept;
	d->samples = count;
}

enum gp_status gp_data_part_take(struct gp_dataset *d, const struct gp_data_part *p, struct gp_err *err)
{
	void *owner, *room;
	const uint32_t of = d->samples;
	enum gp_status status = GP_OK;
	if (p->parts == 1 || of == 0)
		return GP_OK;
	GP_TRY(gp_alloc_array(&owner, of, sizeof(uint32_t), err));
	if ((status = gp_alloc_array(&room, of, sizeof(uint32_t), err)) != GP_OK) {
		gp_free(owner);
		return status;
	}
	if (p->dirichlet > 0)
		status = divide_classes(d, p, owner, room, err);
	else
		deal_out(p, of, owner, room);
	if (status == GP_OK)
		keep(d, p, owner, room);
	else
		gp_free(room);
	gp_free(owner);
	GP_TRY(status);
	if (d->samples == 0)
		GP_FAIL(err, GP_USAGE, "dataset %s: part %lld of %lld has none of the %u samples; %s",
			d->class->info.name, (long long)p->part, (long long)p->parts, of,
			p->dirichlet > 0 ? "take fewer parts, or a larger dirichlet=" : "take fewer parts");
	tell(d, p, of);
	return GP_OK;
}
