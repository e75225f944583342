/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading safetensors files. A file is not trusted: header length, JSON, names,
 * types, shapes and offsets are all checked before a tensor is handed out, and
 * the data must be covered by the tensors without overlap or gap, as the format
 * demands. A tensor of a type or depth that is not supported is listed all the
 * same; only its values cannot be had. Writing is in safetensors_write.c. Format:
 * https://github.com/huggingface/safetensors, "Format".
 * Tests: tests/unit/test_safetensors.c, tests/fuzz/fuzz_safetensors.c
 */
#include "common/store/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/durable.h"
#include "common/base/mem.h"
#include "common/base/text.h"

#define MAX_HEADER_BYTES ((uint64_t)100 << 20)
#define MAX_ELEMENTS     ((uint64_t)1 << 40)
#define MAX_MARKS        (1 << 20) /* some 14 for each tensor */
#define METADATA_KEY     "__metadata__"

struct gp_st_file {
	const uint8_t *bytes;
	size_t len;
	void *own;                   /* the bytes; NULL when they are borrowed */
	json_t *header;              /* owns the names */
	struct gp_st_tensor *tensor; /* in name order */
	int count;
};

static const struct {
	const char *name;
	size_t bytes;
} dtypes[] = {
	[GP_ST_F32] = {"F32", 4}, [GP_ST_F16] = {"F16", 2}, [GP_ST_BF16] = {"BF16", 2}, [GP_ST_F64] = {"F64", 8},
	[GP_ST_I32] = {"I32", 4}, [GP_ST_I64] = {"I64", 8}, [GP_ST_U8] = {"U8", 1},     [GP_ST_OTHER] = {"other", 0},
};

/* Types whose values cannot be read here, but whose size is known. */
static const struct {
	const char *name;
	uint64_t bytes;
} other_types[] = {
	{"BOOL", 1}, {"I8", 1},      {"I16", 2},     {"U16", 2}, {"U32", 4},
	{"U64", 8},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"C64", 8},
};

const char *gp_st_dtype_name(enum gp_st_dtype dtype)
{
	return dtypes[dtype].name;
}

uint64_t gp_st_dtype_bytes(enum gp_st_dtype dtype)
{
	return dtypes[dtype].bytes;
}

/* --- one tensor ------------------------------------------------------------------------------------------------- */

/* Also the bytes of an element; 0: not known. */
static enum gp_status read_type(const json_t *entry, struct gp_st_tensor *t, uint64_t *bytes, struct gp_err *err)
{
	t->type = json_string_value(json_object_get(entry, "dtype"));
	if (!t->type || !gp_text_is_printable(t->type))
		GP_FAIL(err, GP_INVALID, "no \"dtype\" string");
	t->dtype = GP_ST_OTHER;
	*bytes = 0;
	for (int i = 0; i < GP_ST_OTHER; i++) {
		if (strcmp(dtypes[i].name, t->type) == 0) {
			t->dtype = (enum gp_st_dtype)i;
			*bytes = dtypes[i].bytes;
		}
	}
	for (size_t i = 0; i < sizeof other_types / sizeof other_types[0]; i++)
		if (strcmp(other_types[i].name, t->type) == 0)
			*bytes = other_types[i].bytes;
	return GP_OK;
}

/* Shapes of any depth. As gp_shape_count_or_zero. */
static enum gp_status count_elements(const json_t *list, uint64_t limit, uint64_t *count, struct gp_err *err)
{
	uint64_t n = 1;
	bool zero = false;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *dim = json_array_get(list, i);
		if (!json_is_integer(dim) || json_integer_value(dim) < 0)
			GP_FAIL(err, GP_INVALID, "dimension %zu is not an integer from 0 on", i);
		zero |= json_integer_value(dim) == 0;
		if (json_integer_value(dim) > 0 && (!gp_mul_ok(n, (uint64_t)json_integer_value(dim), &n) || n > limit))
			GP_FAIL(err, GP_INVALID, "a shape has more than the allowed %llu elements",
				(unsigned long long)limit);
	}
	*count = zero ? 0 : n;
	return GP_OK;
}

static enum gp_status read_shape(const json_t *entry, struct gp_st_tensor *t, uint64_t *count, struct gp_err *err)
{
	const json_t *list = json_object_get(entry, "shape");
	if (!json_is_array(list))
		GP_FAIL(err, GP_INVALID, "no \"shape\" array");
	GP_TRY(count_elements(list, MAX_ELEMENTS, count, err));
	t->dims = (int)json_array_size(list); /* a header of 100 MiB has no more */
	if (t->dims > GP_MAX_DIMS)
		t->dtype = GP_ST_OTHER;
	t->shape = (struct gp_shape){.ndim = 1};
	t->count = 0;
	if (t->dtype == GP_ST_OTHER)
		return GP_OK;
	t->count = *count;
	t->shape.ndim = t->dims;
	for (int i = 0; i < t->dims; i++)
		t->shape.dim[i] = json_integer_value(json_array_get(list, (size_t)i));
	return GP_OK;
}

static enum gp_status read_offsets(const json_t *entry, uint64_t data_bytes, uint64_t offset[2], struct gp_err *err)
{
	const json_t *list = json_object_get(entry, "data_offsets");
	if (!json_is_array(list) || json_array_size(list) != 2)
		GP_FAIL(err, GP_INVALID, "no \"data_offsets\" array of two");
	for (size_t i = 0; i < 2; i++) {
		const json_t *v = json_array_get(list, i);
		if (!json_is_integer(v) || json_integer_value(v) < 0)
			GP_FAIL(err, GP_INVALID, "data_offsets must be non-negative integers");
		offset[i] = (uint64_t)json_integer_value(v);
	}
	if (offset[0] > offset[1])
		GP_FAIL(err, GP_INVALID, "data_offsets end before they begin");
	if (offset[1] > data_bytes)
		GP_FAIL(err, GP_INVALID, "data ends at byte %llu of %llu; the file is truncated or damaged",
			(unsigned long long)offset[1], (unsigned long long)data_bytes);
	return GP_OK;
}

static enum gp_status read_tensor(const json_t *entry, const uint8_t *data, uint64_t data_bytes, struct gp_st_tensor *t,
				  struct gp_err *err)
{
	uint64_t offset[2], count, bytes;
	if (!json_is_object(entry))
		GP_FAIL(err, GP_INVALID, "its entry is not an object");
	GP_TRY(read_type(entry, t, &bytes, err));
	GP_TRY(read_shape(entry, t, &count, err));
	GP_TRY(read_offsets(entry, data_bytes, offset, err));
	/* count <= 2^40, so the product fits. */
	if (bytes > 0 && count * bytes != offset[1] - offset[0])
		GP_FAIL(err, GP_INVALID, "%llu elements of %s do not fill %llu bytes", (unsigned long long)count,
			t->type, (unsigned long long)(offset[1] - offset[0]));
	t->data = data + offset[0];
	t->bytes = offset[1] - offset[0];
	return GP_OK;
}

/* --- the header ------------------------------------------------------------------------------------------------- */

/* `start`: the file's first 8 bytes, where it has so many. */
static enum gp_status check_length(const uint8_t *start, size_t len, uint64_t *header_bytes, struct gp_err *err)
{
	uint64_t n;
	if (len < sizeof n)
		GP_FAIL(err, GP_INVALID, "%zu bytes are too few for a safetensors file", len);
	memcpy(&n, start, sizeof n);
	if (n > MAX_HEADER_BYTES || n > len - sizeof n)
		GP_FAIL(err, GP_INVALID,
			"the header claims %llu bytes of a file of %zu: not a safetensors file, or truncated",
			(unsigned long long)n, len);
	*header_bytes = n;
	return GP_OK;
}

static enum gp_status load_header(struct gp_st_file *f, uint64_t *data_start, struct gp_err *err)
{
	uint64_t n;
	json_error_t json;
	GP_TRY(check_length(f->bytes, f->len, &n, err));
	const struct gp_text text = {(const char *)f->bytes + sizeof n, (size_t)n};
	if (gp_json_marks(text) > MAX_MARKS)
		GP_FAIL(err, GP_INVALID,
			"the header has more than %d commas, colons and brackets: no file of weights has so many",
			MAX_MARKS);
	f->header = json_loadb(text.at, text.len, JSON_REJECT_DUPLICATES, &json);
	if (!f->header)
		GP_FAIL(err, GP_INVALID, "the header is not valid JSON: %.100s at byte %d", json.text, json.position);
	if (!json_is_object(f->header))
		GP_FAIL(err, GP_INVALID, "the header is not a JSON object");
	*data_start = sizeof n + n;
	return GP_OK;
}

static enum gp_status check_metadata(const struct gp_st_file *f, struct gp_err *err)
{
	json_t *meta = json_object_get(f->header, METADATA_KEY), *value;
	const char *key;
	if (!meta)
		return GP_OK;
	if (!json_is_object(meta))
		GP_FAIL(err, GP_INVALID, METADATA_KEY " is not an object");
	json_object_foreach(meta, key, value) if (!json_is_string(value))
		GP_FAIL(err, GP_INVALID, METADATA_KEY " '%.60s' is not a string", key);
	return GP_OK;
}

static enum gp_status load_tensors(struct gp_st_file *f, uint64_t data_start, struct gp_err *err)
{
	json_t *entry;
	const char *name;
	GP_TRY(gp_alloc_array((void **)&f->tensor, json_object_size(f->header), sizeof *f->tensor, err));
	json_object_foreach(f->header, name, entry)
	{
		struct gp_st_tensor *t = &f->tensor[f->count];
		if (strcmp(name, METADATA_KEY) == 0)
			continue;
		if (!name[0] || !gp_text_is_printable(name))
			GP_FAIL(err, GP_INVALID, "tensor %d has an empty or unprintable name", f->count);
		if (read_tensor(entry, f->bytes + data_start, f->len - data_start, t, err) != GP_OK)
			return gp_err_prefix(err, "tensor '%.100s'", name);
		t->name = name;
		f->count++;
	}
	return GP_OK;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct gp_st_tensor *)a)->name, ((const struct gp_st_tensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
	const struct gp_st_tensor *s = a, *t = b;
	const uint8_t *p = s->data, *q = t->data;
	return p != q ? (p > q) - (p < q) : (s->bytes > t->bytes) - (s->bytes < t->bytes);
}

/* Tensors must cover the data from first to last byte, without overlap or gap; empty ones lie where others meet. */
static enum gp_status check_cover(struct gp_st_file *f, uint64_t data_start, struct gp_err *err)
{
	const uint8_t *at = f->bytes + data_start;
	qsort(f->tensor, (size_t)f->count, sizeof *f->tensor, by_place);
	for (int i = 0; i < f->count; i++) {
		const struct gp_st_tensor *t = &f->tensor[i];
		if ((const uint8_t *)t->data < at)
			GP_FAIL(err, GP_INVALID, "tensors '%.80s' and '%.80s' overlap", t[-1].name, t->name);
		if ((const uint8_t *)t->data > at)
			GP_FAIL(err, GP_INVALID, "%td unused bytes before tensor '%.100s'",
				(const uint8_t *)t->data - at, t->name);
		at += t->bytes;
	}
	if (at != f->bytes + f->len)
		GP_FAIL(err, GP_INVALID, "%td unused bytes after the last tensor", f->bytes + f->len - at);
	return GP_OK;
}

static enum gp_status parse(struct gp_st_file *f, struct gp_err *err)
{
	uint64_t data_start;
	GP_TRY(load_header(f, &data_start, err));
	GP_TRY(check_metadata(f, err));
	GP_TRY(load_tensors(f, data_start, err));
	GP_TRY(check_cover(f, data_start, err));
	qsort(f->tensor, (size_t)f->count, sizeof *f->tensor, by_name);
	return GP_OK;
}

enum gp_status gp_st_parse(const void *bytes, size_t len, const char *label, struct gp_st_file **out,
			   struct gp_err *err)
{
	struct gp_st_file *f = gp_calloc(1, sizeof *f);
	if (!f)
		GP_FAIL(err, GP_NOMEM, "%s: out of memory", label);
	f->bytes = bytes;
	f->len = len;
	if (parse(f, err) != GP_OK) {
		gp_st_close(f);
		return gp_err_prefix(err, "%s", label);
	}
	*out = f;
	return GP_OK;
}

/* --- files ------------------------------------------------------------------------------------------------------ */

static enum gp_status measure_file(int fd, const char *path, size_t *len, struct gp_err *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return gp_err_set(err, GP_IO, errno, __FILE__, __LINE__, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		GP_FAIL(err, GP_INVALID, "%s: %s", path, S_ISREG(st.st_mode) ? "the file is empty" : "not a file");
	*len = (size_t)st.st_size;
	return GP_OK;
}

/* What is no safetensors file at all, and may be of any size, is refused before it is read. */
static enum gp_status read_file(int fd, const char *path, void **bytes, size_t *len, struct gp_err *err)
{
	uint8_t start[sizeof(uint64_t)];
	uint64_t header_bytes;
	size_t size = 0;
	GP_TRY(measure_file(fd, path, &size, err));
	const size_t first = size < sizeof start ? size : sizeof start;
	GP_TRY(gp_read_all(fd, start, first, path, err));
	if (check_length(start, size, &header_bytes, err) != GP_OK)
		return gp_err_prefix(err, "%s", path);
	uint8_t *all = gp_alloc_aligned(size);
	if (!all)
		GP_FAIL(err, GP_NOMEM, "%s: no memory for its %zu bytes", path, size);
	memcpy(all, start, first);
	if (gp_read_all(fd, all + first, size - first, path, err) != GP_OK) {
		gp_free_aligned(all);
		return err->code;
	}
	*bytes = all;
	*len = size;
	return GP_OK;
}

enum gp_status gp_st_open(const char *path, struct gp_st_file **out, struct gp_err *err)
{
	void *bytes = NULL;
	size_t len = 0;
	struct gp_st_file *f;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot open %s: %s", path,
				  strerror(errno));
	enum gp_status status = read_file(fd, path, &bytes, &len, err);
	close(fd);
	GP_TRY(status);
	if (gp_st_parse(bytes, len, path, &f, err) != GP_OK) {
		gp_free_aligned(bytes);
		return err->code;
	}
	f->own = bytes;
	*out = f;
	return GP_OK;
}

void gp_st_close(struct gp_st_file *f)
{
	if (!f)
		return;
	json_decref(f->header);
	gp_free(f->tensor);
	gp_free_aligned(f->own);
	gp_free(f);
}

/* --- access ----------------------------------------------------------------------------------------------------- */

struct gp_span gp_st_bytes(const struct gp_st_file *f)
{
	return (struct gp_span){f->bytes, f->len};
}

int gp_st_count(const struct gp_st_file *f)
{
	return f->count;
}

const struct gp_st_tensor *gp_st_at(const struct gp_st_file *f, int index)
{
	return index >= 0 && index < f->count ? &f->tensor[index] : NULL;
}

const struct gp_st_tensor *gp_st_find(const struct gp_st_file *f, const char *name)
{
	const struct gp_st_tensor key = {.name = name};
	return bsearch(&key, f->tensor, (size_t)f->count, sizeof *f->tensor, by_name);
}

const char *gp_st_metadata(const struct gp_st_file *f, const char *key)
{
	return json_string_value(json_object_get(json_object_get(f->header, METADATA_KEY), key));
}

static float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff, bits;
	float f;
	if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24 is exact */
		f = (float)mantissa * 0x1p-24f;
		return sign ? -f : f;
	}
	if (exponent == 31)
		bits = sign | 0x7f800000 | mantissa << 13;
	else
		bits = sign | (exponent + 112) << 23 | mantissa << 13;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static float load_element(const uint8_t *p, enum gp_st_dtype dtype)
{
	uint16_t h;
	uint32_t bits;
	float f;
	double d;
	switch (dtype) {
	case GP_ST_F16:
		memcpy(&h, p, sizeof h);
		return half_to_float(h);
	case GP_ST_BF16:
		memcpy(&h, p, sizeof h);
		bits = (uint32_t)h << 16;
		memcpy(&f, &bits, sizeof f);
		return f;
	default:
		memcpy(&d, p, sizeof d);
		return (float)d;
	}
}

enum gp_status gp_st_read_f32(const struct gp_st_tensor *t, float *out, struct gp_err *err)
{
	if (t->dims > GP_MAX_DIMS)
		GP_FAIL(err, GP_UNSUPPORTED, "it has %d dimensions; values of at most %d can be read", t->dims,
			GP_MAX_DIMS);
	if (t->dtype == GP_ST_OTHER)
		GP_FAIL(err, GP_UNSUPPORTED, "it holds %.20s, which is not supported", t->type);
	if (t->dtype == GP_ST_I32 || t->dtype == GP_ST_I64 || t->dtype == GP_ST_U8)
		GP_FAIL(err, GP_INVALID, "it holds %s, not real numbers", t->type);
	if (t->dtype == GP_ST_F32) {
		memcpy(out, t->data, t->count * sizeof *out);
		return GP_OK;
	}
	const uint8_t *p = t->data;
	for (uint64_t i = 0; i < t->count; i++, p += dtypes[t->dtype].bytes)
		out[i] = load_element(p, t->dtype);
	return GP_OK;
}
