/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors reading and writing (common/store/safetensors.h): round trips, every
 * way a header can lie, and that a failed write leaves nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/fault.h"
#include "common/base/mem.h"
#include "common/store/safetensors.h"

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/gp_st_XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int entries_in_dir(void)
{
	int n = 0;
	DIR *d = opendir(dir);
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static int remove_dir(void **state)
{
	(void)state;
	DIR *d = opendir(dir);
	if (!d)
		return -1;
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.')
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	return rmdir(dir);
}

static const char *in_dir(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

/* --- bytes made by hand ----------------------------------------------------------------------------------------- */

static uint8_t image[4096];

static size_t make_image(const char *json, size_t data_bytes)
{
	uint64_t n = strlen(json);
	memcpy(image, &n, 8);
	memcpy(image + 8, json, n);
	for (size_t i = 0; i < data_bytes; i++)
		image[8 + n + i] = (uint8_t)i;
	return 8 + n + data_bytes;
}

static void expect_refused(const char *json, size_t data_bytes, const char *words)
{
	struct gp_err err = {0};
	struct gp_st_file *f = NULL;
	enum gp_status status = gp_st_parse(image, make_image(json, data_bytes), "x.safetensors", &f, &err);
	assert_true(status == GP_INVALID || status == GP_UNSUPPORTED);
	assert_null(f);
	if (!strstr(err.text, words) || !strstr(err.text, "x.safetensors"))
		fail_msg("'%s' does not mention '%s'", err.text, words);
}

static void header_that_lies_is_refused_with_a_clear_message(void **state)
{
	(void)state;
	expect_refused("", 0, "not valid JSON");
	expect_refused("[]", 0, "not a JSON object");
	expect_refused("{\"a\":1}", 0, "tensor 'a': its entry is not an object");
	expect_refused("{\"a\":{}}", 0, "dtype");
	expect_refused("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, "do not fill 1 bytes");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[0,2],\"data_offsets\":[0,4]}}", 4, "do not fill 4 bytes");
	expect_refused("{\"a\":{\"dtype\":\"\\u001b\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "dtype");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]}}", 0,
		       "elements");
	expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
		       "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
		       2, "overlap");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension 0");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "not an integer");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,2],\"data_offsets\":[0,4]}}", 4, "do not fill");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
		       "elements");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "non-negative");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "before they begin");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "truncated");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not fill 4 bytes");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "unused bytes after");
	expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "unused bytes before");
	expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
		       "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}",
		       5, "'a' and 'b' overlap");
	expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
		       "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
		       2, "duplicate");
	expect_refused("{\"\\u001b[2J\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "unprintable");
	expect_refused("{\"__metadata__\":[]}", 0, "__metadata__");
	expect_refused("{\"__metadata__\":{\"k\":1}}", 0, "'k' is not a string");
}

static void header_length_is_checked_before_it_is_used(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	size_t len = make_image("{}", 0);
	assert_int_equal(gp_st_parse(image, 7, "x", &f, &err), GP_INVALID);
	for (int bit = 2; bit < 64; bit++) {
		uint64_t n = (uint64_t)1 << bit;
		memcpy(image, &n, 8);
		assert_int_equal(gp_st_parse(image, len, "x", &f, &err), GP_INVALID);
	}
	assert_null(f);
}

/* A parser takes a hundred times the bytes of such a header. */
static void a_header_of_too_many_values_is_refused(void **state)
{
	(void)state;
	const size_t values = 1 << 20, n = 3 * values + 8;
	char *bytes = gp_calloc(8 + n, 1);
	struct gp_err err;
	struct gp_st_file *f = NULL;
	const uint64_t header = n;
	assert_non_null(bytes);
	memcpy(bytes, &header, 8);
	memset(bytes + 8, ' ', n);
	memcpy(bytes + 8, "{\"a\":[", 6);
	for (size_t i = 0; i < values; i++)
		memcpy(bytes + 14 + 3 * i, i + 1 < values ? "[]," : "[] ", 3);
	memcpy(bytes + 14 + 3 * values, "]}", 2);
	assert_int_equal(gp_st_parse(bytes, 8 + n, "x", &f, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "commas, colons and brackets"));
	gp_free(bytes);
}

static void every_truncation_of_a_file_is_refused(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	size_t len = make_image("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", 12);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(gp_st_parse(image, cut, "x", &f, &err), GP_INVALID);
	assert_int_equal(gp_st_parse(image, len, "x", &f, &err), GP_OK);
	gp_st_close(f);
}

static void read_one(const char *dtype, const void *data, size_t bytes, float want)
{
	char json[200];
	float got = -1;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"%s\",\"shape\":[],\"data_offsets\":[0,%zu]}}", dtype, bytes);
	size_t len = make_image(json, bytes);
	memcpy(image + len - bytes, data, bytes);
	assert_int_equal(gp_st_parse(image, len, "x", &f, &err), GP_OK);
	assert_int_equal(gp_st_read_f32(gp_st_find(f, "a"), &got, &err), GP_OK);
	assert_memory_equal(&got, &want, sizeof got);
	gp_st_close(f);
}

static void floating_point_types_convert_exactly(void **state)
{
	(void)state;
	double d = -0.15625;
	read_one("F64", &d, 8, -0.15625f);
	static const struct {
		uint16_t bits;
		float value;
	} half[] = {{0x0000, 0.0f},     {0x8000, -0.0f},     {0x3c00, 1.0f},          {0xc000, -2.0f},
		    {0x7bff, 65504.0f}, {0x0001, 0x1p-24f},  {0x83ff, -0x1.ff8p-15f}, {0x0400, 0x1p-14f},
		    {0x7c00, INFINITY}, {0xfc00, -INFINITY}, {0x3555, 0x1.554p-2f}};
	for (size_t i = 0; i < sizeof half / sizeof half[0]; i++)
		read_one("F16", &half[i].bits, 2, half[i].value);
	uint16_t bf = 0xc049;
	read_one("BF16", &bf, 2, -3.140625f);
}

static void integers_are_not_read_as_real_numbers(void **state)
{
	(void)state;
	float out[2] = {7, 7};
	struct gp_err err;
	struct gp_st_file *f = NULL;
	size_t len = make_image("{\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8);
	assert_int_equal(gp_st_parse(image, len, "x", &f, &err), GP_OK);
	assert_int_equal(gp_st_read_f32(gp_st_at(f, 0), out, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "I64"));
	assert_true(out[0] == 7);
	gp_st_close(f);
}

static void expect_unreadable(const struct gp_st_file *f, const char *name, const char *words)
{
	struct gp_err err = {0};
	float out[1] = {7};
	const struct gp_st_tensor *t = gp_st_find(f, name);
	assert_non_null(t);
	assert_true(t->dtype == GP_ST_OTHER && t->count == 0);
	assert_int_equal(gp_st_read_f32(t, out, &err), GP_UNSUPPORTED);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	assert_true(out[0] == 7);
}

static void an_odd_tensor_is_in_no_other_ones_way(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_st_file *f = NULL;
	float got = 7;
	const size_t len = make_image("{\"bool\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]},"
				      "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[],\"data_offsets\":[2,3]},"
				      "\"f4\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[3,4]},"
				      "\"deep\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1],\"data_offsets\":[4,8]},"
				      "\"none\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[8,8]},"
				      "\"nil\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[8,8]},"
				      "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
				      12);
	assert_int_equal(gp_st_parse(image, len, "x", &f, &err), GP_OK);
	assert_int_equal(gp_st_count(f), 7);
	expect_unreadable(f, "bool", "BOOL");
	expect_unreadable(f, "f8", "F8_E4M3");
	expect_unreadable(f, "f4", "F4");
	expect_unreadable(f, "deep", "6 dimensions");
	const struct gp_st_tensor *none = gp_st_find(f, "none"), *x = gp_st_find(f, "x");
	assert_true(none->count == 0 && none->shape.ndim == 2 && none->shape.dim[0] == 3 && none->shape.dim[1] == 0);
	assert_int_equal(gp_st_read_f32(none, &got, &err), GP_OK);
	assert_true(got == 7);
	assert_int_equal(gp_st_read_f32(x, &got, &err), GP_OK);
	assert_memory_equal(&got, x->data, sizeof got);
	gp_st_close(f);
}

/* --- files ------------------------------------------------------------------------------------------------------ */

static const float weights[6] = {1, -2, 0.5f, 3e-40f, -0.0f, 6};
static const float bias[2] = {10, 11};
static const struct gp_st_item items[2] = {
	{"layer.weight", {.ndim = 2, .dim = {2, 3}}, weights, GP_ST_F32},
	{"layer.bias", {.ndim = 1, .dim = {2}}, bias, GP_ST_F32},
};
static const struct gp_st_pair meta[] = {{"epoch", "3"}, {"model", "cnn \"xy\""}};

static void written_file_reads_back_bit_for_bit(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	float got[6];
	const char *path = in_dir("a.safetensors");
	assert_int_equal(gp_st_write(path, items, 2, meta, 2, &err), GP_OK);
	assert_int_equal(gp_st_open(path, &f, &err), GP_OK);
	assert_int_equal(gp_st_count(f), 2);
	assert_string_equal(gp_st_at(f, 0)->name, "layer.bias");
	assert_string_equal(gp_st_metadata(f, "model"), "cnn \"xy\"");
	assert_null(gp_st_metadata(f, "absent"));
	assert_null(gp_st_find(f, "absent"));
	const struct gp_st_tensor *t = gp_st_find(f, "layer.weight");
	assert_true(gp_shape_equal(&t->shape, &items[0].shape));
	assert_int_equal(gp_st_read_f32(t, got, &err), GP_OK);
	assert_memory_equal(got, weights, sizeof weights);
	gp_st_close(f);
	assert_int_equal(entries_in_dir(), 1);
}

static void bytes_are_written_and_read_back_as_they_are(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	const struct gp_st_item two[2] = {{"codec", {.ndim = 1, .dim = {5}}, "\x00\xff\x7f\x01z", GP_ST_U8}, items[1]};
	const char *path = in_dir("a.safetensors");
	assert_int_equal(gp_st_write(path, two, 2, NULL, 0, &err), GP_OK);
	assert_int_equal(gp_st_open(path, &f, &err), GP_OK);
	const struct gp_st_tensor *t = gp_st_find(f, "codec");
	assert_true(t->dtype == GP_ST_U8 && t->count == 5);
	assert_memory_equal(t->data, "\x00\xff\x7f\x01z", 5);
	gp_st_close(f);
}

static void a_tensor_without_elements_is_written_and_read_back(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_st_file *f = NULL;
	const struct gp_st_item two[2] = {{"none", {.ndim = 2, .dim = {0, 3}}, NULL, GP_ST_F32}, items[0]};
	assert_int_equal(gp_st_write(in_dir("a"), two, 2, NULL, 0, &err), GP_OK);
	assert_int_equal(gp_st_open(in_dir("a"), &f, &err), GP_OK);
	assert_true(gp_shape_equal(&gp_st_find(f, "none")->shape, &two[0].shape));
	gp_st_close(f);
	assert_int_equal(gp_st_write(in_dir("a"), two, 1, NULL, 0, &err), GP_OK);
	assert_int_equal(gp_st_open(in_dir("a"), &f, &err), GP_OK);
	assert_int_equal(gp_st_count(f), 1);
	gp_st_close(f);
}

static void equal_content_gives_equal_bytes_in_any_order(void **state)
{
	(void)state;
	struct gp_err err;
	char a[1024], b[1024];
	const struct gp_st_item swapped[2] = {items[1], items[0]};
	assert_int_equal(gp_st_write(in_dir("a"), items, 2, NULL, 0, &err), GP_OK);
	assert_int_equal(gp_st_write(in_dir("b"), swapped, 2, NULL, 0, &err), GP_OK);
	FILE *fa = fopen(in_dir("a"), "rb"), *fb = fopen(in_dir("b"), "rb");
	assert_true(fa && fb);
	size_t na = fread(a, 1, sizeof a, fa), nb = fread(b, 1, sizeof b, fb);
	fclose(fa);
	fclose(fb);
	assert_int_equal(na, nb);
	assert_memory_equal(a, b, na);
}

static void bad_items_are_refused_and_no_file_appears(void **state)
{
	(void)state;
	struct gp_err err;
	const struct gp_st_item twice[2] = {items[1], items[1]};
	const struct gp_st_item latin1 = {"caf\xe9", {.ndim = 1, .dim = {2}}, bias, GP_ST_F32};
	const struct gp_st_item negative = {"a", {.ndim = 1, .dim = {-1}}, bias, GP_ST_F32};
	assert_int_equal(gp_st_write(in_dir("a"), twice, 2, NULL, 0, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "layer.bias"));
	assert_int_equal(gp_st_write(in_dir("a"), &latin1, 1, NULL, 0, &err), GP_INVALID);
	assert_int_equal(gp_st_write(in_dir("a"), &negative, 1, NULL, 0, &err), GP_INVALID);
	assert_int_equal(gp_st_write(in_dir("absent/a"), items, 2, NULL, 0, &err), GP_INVALID);
	assert_int_equal(entries_in_dir(), 0);
}

static void only_a_regular_file_is_replaced(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct stat st;
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	assert_int_equal(gp_st_check_target(in_dir("fifo"), &err), GP_INVALID);
	assert_int_equal(gp_st_write(in_dir("fifo"), items, 2, NULL, 0, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "not a regular file"));
	assert_int_equal(symlink("fifo", in_dir("link")), 0);
	assert_int_equal(gp_st_write(in_dir("link"), items, 2, NULL, 0, &err), GP_INVALID);
	assert_int_equal(gp_st_write(dir, items, 2, NULL, 0, &err), GP_INVALID);
	assert_int_equal(gp_st_write("", items, 2, NULL, 0, &err), GP_INVALID);
	assert_int_equal(lstat(in_dir("fifo"), &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(symlink("nowhere", in_dir("dangling")), 0);
	assert_int_equal(gp_st_write(in_dir("dangling"), items, 2, NULL, 0, &err), GP_INVALID);
	assert_int_equal(entries_in_dir(), 3);
}

static void a_link_stays_and_its_file_is_replaced(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_st_file *f = NULL;
	struct stat st;
	assert_int_equal(gp_st_write(in_dir("real"), items, 1, NULL, 0, &err), GP_OK);
	assert_int_equal(symlink("real", in_dir("link")), 0);
	assert_int_equal(gp_st_check_target(in_dir("link"), &err), GP_OK);
	assert_int_equal(gp_st_write(in_dir("link"), items, 2, NULL, 0, &err), GP_OK);
	assert_int_equal(lstat(in_dir("link"), &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(gp_st_open(in_dir("real"), &f, &err), GP_OK);
	assert_int_equal(gp_st_count(f), 2);
	gp_st_close(f);
	assert_int_equal(entries_in_dir(), 2);
}

static void things_that_are_not_files_are_refused(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	assert_int_equal(gp_st_open(in_dir("absent"), &f, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "absent"));
	assert_int_equal(gp_st_open(dir, &f, &err), GP_INVALID);
	FILE *e = fopen(in_dir("empty"), "wb");
	assert_non_null(e);
	fclose(e);
	assert_int_equal(gp_st_open(in_dir("empty"), &f, &err), GP_INVALID);
	assert_null(f);
}

#ifdef GP_FAULTS
/* Fails the nth event for n = 1, 2, ... until a write goes through; returns how many failed. */
static int walk_faults(enum gp_fault_kind kind, bool *old_kept)
{
	struct gp_err err;
	struct gp_st_file *f = NULL;
	int failed = 0;
	for (;; failed++) {
		assert_true(failed < 100);
		gp_fault_arm(kind, (uint64_t)failed + 1);
		enum gp_status status = gp_st_write(in_dir("a"), items, 2, meta, 2, &err);
		gp_fault_arm(kind, 0);
		if (status == GP_OK)
			break;
		assert_true(status == GP_IO || status == GP_NOMEM);
		assert_int_equal(entries_in_dir(), 1);
		assert_int_equal(gp_st_open(in_dir("a"), &f, &err), GP_OK); /* old or new, but whole */
		*old_kept = gp_st_count(f) == 1;
		gp_st_close(f);
	}
	return failed;
}

static void failed_write_leaves_the_old_file_and_nothing_else(void **state)
{
	(void)state;
	struct gp_err err;
	bool old_kept = false;
	assert_int_equal(gp_st_write(in_dir("a"), items, 1, NULL, 0, &err), GP_OK);
	assert_int_equal(walk_faults(GP_FAULT_WRITE, &old_kept), 5); /* length, header, padding, two tensors */
	assert_true(old_kept);
}

static void failed_sync_leaves_a_whole_file(void **state)
{
	(void)state;
	struct gp_err err;
	bool old_kept = true;
	assert_int_equal(gp_st_write(in_dir("a"), items, 1, NULL, 0, &err), GP_OK);
	assert_int_equal(walk_faults(GP_FAULT_FSYNC, &old_kept), 2); /* the file, then its directory */
	assert_false(old_kept);                                      /* the directory's sync comes after the rename */
}

static void failed_allocation_is_an_error_not_a_crash(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	bool old_kept = false;
	assert_int_equal(gp_st_write(in_dir("a"), items, 1, NULL, 0, &err), GP_OK);
	assert_true(walk_faults(GP_FAULT_ALLOC, &old_kept) >= 1);
	assert_true(old_kept);
	for (uint64_t nth = 1; nth <= 2; nth++) {
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		assert_int_equal(gp_st_open(in_dir("a"), &f, &err), GP_NOMEM);
	}
	gp_fault_arm(GP_FAULT_ALLOC, 0);
	assert_null(f);
}

/* A mapped file would end the process by SIGBUS where a read says what is wrong. */
static void disk_that_cannot_be_read_is_an_error(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	assert_int_equal(gp_st_write(in_dir("a"), items, 1, NULL, 0, &err), GP_OK);
	for (uint64_t nth = 1; nth <= 2; nth++) {
		gp_fault_arm(GP_FAULT_READ, nth);
		assert_int_equal(gp_st_open(in_dir("a"), &f, &err), GP_IO);
		assert_non_null(strstr(err.text, "cannot read"));
	}
	gp_fault_arm(GP_FAULT_READ, 0);
	assert_null(f);
}
#endif

/* Whatever its size: nothing of it is read but its first bytes. */
static void large_file_of_another_kind_is_refused_before_it_is_read(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_st_file *f = NULL;
	FILE *e = fopen(in_dir("huge"), "wb");
	assert_non_null(e);
	assert_int_equal(fwrite("not safetensors", 1, 15, e), 15);
	fclose(e);
	assert_int_equal(truncate(in_dir("huge"), (off_t)1 << 43), 0); /* sparse; more than any memory */
	assert_int_equal(gp_st_open(in_dir("huge"), &f, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "huge: the header claims"));
	assert_null(f);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_that_lies_is_refused_with_a_clear_message),
		cmocka_unit_test(header_length_is_checked_before_it_is_used),
		cmocka_unit_test(a_header_of_too_many_values_is_refused),
		cmocka_unit_test(every_truncation_of_a_file_is_refused),
		cmocka_unit_test(floating_point_types_convert_exactly),
		cmocka_unit_test(an_odd_tensor_is_in_no_other_ones_way),
		cmocka_unit_test(integers_are_not_read_as_real_numbers),
		WITH_DIR(written_file_reads_back_bit_for_bit),
		WITH_DIR(bytes_are_written_and_read_back_as_they_are),
		WITH_DIR(a_tensor_without_elements_is_written_and_read_back),
		WITH_DIR(equal_content_gives_equal_bytes_in_any_order),
		WITH_DIR(bad_items_are_refused_and_no_file_appears),
		WITH_DIR(only_a_regular_file_is_replaced),
		WITH_DIR(a_link_stays_and_its_file_is_replaced),
		WITH_DIR(things_that_are_not_files_are_refused),
		WITH_DIR(large_file_of_another_kind_is_refused_before_it_is_read),
#ifdef GP_FAULTS
		WITH_DIR(failed_write_leaves_the_old_file_and_nothing_else),
		WITH_DIR(failed_sync_leaves_a_whole_file),
		WITH_DIR(failed_allocation_is_an_error_not_a_crash),
		WITH_DIR(disk_that_cannot_be_read_is_an_error),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
