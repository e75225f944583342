/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints on disk and their manifests (common/store/checkpoint.h,
 * common/store/manifest.h): what is written is read back, every way a manifest can
 * lie, damaged files, and that a failed write leaves the older ones whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/store/checkpoint.h"
#include "common/base/durable.h"
#include "common/base/fault.h"

static char root[64], dir[80];
static const float values[6] = {1, -2, 0.5f, 3e-40f, -0.0f, 6};
static const struct gp_st_item items[2] = {
	{"param.weight", {.ndim = 2, .dim = {2, 3}}, values, GP_ST_F32},
	{"codec.act_up", {.ndim = 1, .dim = {5}}, "\x00\x01\xff!z", GP_ST_U8},
};

static int make_root(void **state)
{
	(void)state;
	strcpy(root, "/tmp/gp_ckpt_XXXXXX");
	if (!mkdtemp(root))
		return -1;
	snprintf(dir, sizeof dir, "%s/run", root);
	return 0;
}

static int remove_root(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static struct gp_manifest manifest_of(uint64_t step)
{
	struct gp_manifest m = {.role = GP_MANIFEST_SERVER, .step = step};
	for (int i = 0; i < GP_RUN_ID_BYTES; i++)
		m.run_id[i] = (uint8_t)(17 * i);
	gp_pairs_add(&m.spec, "batch", "64");
	gp_pairs_add(&m.spec, "codec-act-up", "uniform:bits=8 \"x\"");
	gp_pairs_add(&m.progress, "samples", "6400");
	return m;
}

static void write_step(uint64_t step)
{
	struct gp_err err = {0};
	struct gp_manifest m = manifest_of(step);
	if (gp_checkpoint_write(dir, &m, items, 2, NULL, &err) != GP_OK)
		fail_msg("%s", err.text);
}

static void expect_steps(int count, const uint64_t *want)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	int n = -1;
	struct gp_err err;
	assert_int_equal(gp_checkpoint_list(dir, step, &n, &err), GP_OK);
	assert_int_equal(n, count);
	for (int i = 0; i < count; i++)
		assert_int_equal(step[i], want[i]);
}

static void expect_whole(uint64_t step)
{
	struct gp_err err = {0};
	struct gp_checkpoint *c = NULL;
	if (gp_checkpoint_open(dir, step, &c, &err) != GP_OK)
		fail_msg("%s", err.text);
	const struct gp_st_tensor *t = gp_st_find(c->state, "param.weight");
	float got[6];
	assert_true(t && gp_shape_equal(&t->shape, &items[0].shape));
	assert_int_equal(gp_st_read_f32(t, got, &err), GP_OK);
	assert_memory_equal(got, values, sizeof values);
	t = gp_st_find(c->state, "codec.act_up");
	assert_true(t && t->dtype == GP_ST_U8 && t->count == 5);
	assert_memory_equal(t->data, items[1].data, 5);
	gp_checkpoint_close(c);
}

static const char *in_step(uint64_t step, const char *file)
{
	static char path[160];
	snprintf(path, sizeof path, "%s/step-%012llu/%s", dir, (unsigned long long)step, file);
	return path;
}

static void what_is_written_is_read_back(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_manifest m = {0}, want = manifest_of(300);
	write_step(300);
	expect_whole(300);
	assert_int_equal(gp_checkpoint_peek(dir, 300, &m, &err), GP_OK);
	assert_int_equal(m.role, GP_MANIFEST_SERVER);
	assert_int_equal(m.step, 300);
	assert_memory_equal(m.run_id, want.run_id, sizeof m.run_id);
	assert_int_equal(gp_pairs_compare(&m.spec, &want.spec, "--", &err), GP_OK);
	assert_string_equal(gp_pairs_find(&m.progress, "samples"), "6400");
	assert_null(gp_pairs_find(&m.progress, "batch"));
	gp_manifest_deinit(&m);
}

static void files_are_for_their_owner_alone(void **state)
{
	(void)state;
	struct stat st;
	write_step(1);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(in_step(1, "."), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(in_step(1, "state.safetensors"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(in_step(1, "manifest.json"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void checkpoint_of_the_same_step_is_replaced(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_manifest m = manifest_of(5), got;
	write_step(5);
	m.spec.pair[0].value = "128";
	assert_int_equal(gp_checkpoint_write(dir, &m, items, 2, NULL, &err), GP_OK);
	assert_int_equal(gp_checkpoint_peek(dir, 5, &got, &err), GP_OK);
	assert_string_equal(gp_pairs_find(&got.spec, "batch"), "128");
	gp_manifest_deinit(&got);
	expect_steps(1, (uint64_t[]){5});
}

static void newest_are_listed_first_and_kept(void **state)
{
	(void)state;
	struct gp_err err;
	expect_steps(0, NULL);
	for (uint64_t s = 1; s <= 20; s++)
		write_step(s * 7 % 23);
	expect_steps(16, (uint64_t[]){22, 21, 20, 19, 18, 17, 15, 14, 13, 12, 11, 10, 8, 7, 6, 5});
	assert_int_equal(gp_checkpoint_drop_after(dir, 20, &err), GP_OK);
	assert_int_equal(gp_checkpoint_prune(dir, 3, &err), GP_OK);
	expect_steps(3, (uint64_t[]){20, 19, 18});
	assert_int_equal(gp_checkpoint_prune(dir, 3, &err), GP_OK);
	expect_steps(3, (uint64_t[]){20, 19, 18});
	expect_whole(19);
	assert_int_equal(gp_checkpoint_remove(dir, 19, &err), GP_OK);
	assert_int_equal(gp_checkpoint_remove(dir, 19, &err), GP_OK);
	expect_steps(2, (uint64_t[]){20, 18});
	assert_int_equal(gp_checkpoint_drop_after(dir, 0, &err), GP_OK);
	expect_steps(0, NULL);
}

static void touch(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void links_in_the_place_of_checkpoints_are_removed_and_what_they_point_to_stays(void **state)
{
	static const char *const planted[] = {"step-000000000003", "step-000000000009", "tmp-step-000000000005",
					      "tmp-old-step-000000000003"};
	(void)state;
	char elsewhere[80], precious[96], path[160];
	struct gp_err err = {0};
	int lock;
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", root);
	snprintf(precious, sizeof precious, "%s/precious", elsewhere);
	assert_int_equal(gp_make_folder(elsewhere, &err), GP_OK);
	assert_int_equal(gp_make_folder(dir, &err), GP_OK);
	touch(precious);
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, planted[i]);
		assert_int_equal(symlink(elsewhere, path), 0);
	}
	write_step(3);
	write_step(5);
	assert_int_equal(gp_checkpoint_drop_after(dir, 5, &err), GP_OK);
	expect_steps(2, (uint64_t[]){5, 3});
	expect_whole(3);
	snprintf(path, sizeof path, "%s/tmp-step-000000000007", dir);
	assert_int_equal(symlink(elsewhere, path), 0);
	snprintf(path, sizeof path, "%s/tmp-old-step-000000000007", dir);
	touch(path);
	assert_int_equal(gp_checkpoint_lock(dir, &lock, &err), GP_OK); /* takes leftovers away */
	gp_checkpoint_unlock(lock);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(access(precious, F_OK), 0);
}

static void folder_belongs_to_one_process_and_leftovers_go(void **state)
{
	(void)state;
	struct gp_err err;
	int lock, second;
	char left[128];
	write_step(3);
	snprintf(left, sizeof left, "%s/tmp-step-000000000004", dir);
	assert_int_equal(mkdir(left, 0700), 0);
	assert_int_equal(gp_write_file(strcat(left, "/state.safetensors"), "half", 4, &err), GP_OK);
	assert_int_equal(gp_checkpoint_lock(dir, &lock, &err), GP_OK);
	assert_int_not_equal(access(left, F_OK), 0);
	assert_int_equal(gp_checkpoint_lock(dir, &second, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "in use by another process"));
	gp_checkpoint_unlock(lock);
	assert_int_equal(gp_checkpoint_lock(dir, &lock, &err), GP_OK);
	gp_checkpoint_unlock(lock);
	expect_whole(3);
}

static void expect_folder_refused(enum gp_manifest_role role, const char *words)
{
	struct gp_err err;
	assert_int_equal(gp_checkpoint_check_folder(dir, role, &err), GP_INVALID);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
}

static void folder_of_somebody_else_is_refused_and_nothing_in_it_is_touched(void **state)
{
	(void)state;
	struct gp_err err;
	char path[160];
	int lock;
	assert_int_equal(gp_checkpoint_check_folder(dir, GP_MANIFEST_CLIENT, &err), GP_OK); /* there is none */
	assert_int_equal(gp_make_folder(dir, &err), GP_OK);
	snprintf(path, sizeof path, "%s/lost+found", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(gp_checkpoint_check_folder(dir, GP_MANIFEST_SERVER, &err), GP_OK);
	snprintf(path, sizeof path, "%s/tmp-thesis", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	expect_folder_refused(GP_MANIFEST_CLIENT, "holds other files ('tmp-thesis') and no checkpoints");
	expect_folder_refused(GP_MANIFEST_SERVER, "holds other files ('tmp-thesis') and no checkpoints");
	assert_int_equal(gp_checkpoint_lock(dir, &lock, &err), GP_OK); /* it is ours from now on */
	gp_checkpoint_unlock(lock);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(gp_checkpoint_check_folder(dir, GP_MANIFEST_CLIENT, &err), GP_OK);
	write_step(3);
	assert_int_equal(gp_checkpoint_check_folder(dir, GP_MANIFEST_CLIENT, &err), GP_OK);
	expect_folder_refused(GP_MANIFEST_SERVER, "holds the checkpoints of a client ('step-000000000003')");
	assert_int_equal(gp_checkpoint_remove(dir, 3, &err), GP_OK);
	snprintf(path, sizeof path, "%s/00112233445566778899aabbccddeeff", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	expect_folder_refused(GP_MANIFEST_CLIENT, "holds the checkpoints of a server ('00112233...')");
	assert_int_equal(gp_checkpoint_check_folder(dir, GP_MANIFEST_SERVER, &err), GP_OK);
	snprintf(path, sizeof path, "%s/step-17", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	expect_folder_refused(GP_MANIFEST_SERVER, "holds 'step-17', which is no checkpoint of this version");
}

static void checkpoint_is_confirmed_until_it_is_written_again(void **state)
{
	(void)state;
	struct gp_err err;
	assert_int_equal(gp_checkpoint_confirm(dir, 3, &err), GP_IO);
	write_step(3);
	assert_false(gp_checkpoint_is_confirmed(dir, 3));
	assert_int_equal(gp_checkpoint_confirm(dir, 3, &err), GP_OK);
	assert_true(gp_checkpoint_is_confirmed(dir, 3));
	expect_whole(3);
	write_step(3);
	assert_false(gp_checkpoint_is_confirmed(dir, 3));
}

/* --- manifests that lie ----------------------------------------------------------------------------------------- */

#define RUN  "\"run\":\"00112233445566778899aabbccddeeff\","
#define HASH "\"state_xxh3\":\"0123456789abcdef\","
#define REST RUN "\"step\":1,\"state_bytes\":9," HASH "\"spec\":{},\"progress\":{}}"

static void expect_refused(const char *json, const char *words)
{
	struct gp_err err = {0};
	struct gp_manifest m;
	enum gp_status status = gp_manifest_parse(json, strlen(json), &m, &err);
	assert_true(status == GP_INVALID || status == GP_UNSUPPORTED);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
}

static void manifest_that_lies_is_refused_with_a_clear_message(void **state)
{
	(void)state;
	expect_refused("", "not valid JSON");
	expect_refused("[]", "format");
	expect_refused("{\"format\":2,\"role\":\"client\"," REST, "this version reads format 1");
	expect_refused("{\"format\":1,\"role\":\"king\"," REST, "neither client nor server");
	expect_refused("{\"format\":1,\"role\":7," REST, "neither client nor server");
	expect_refused("{\"format\":1,\"role\":\"client\",\"run\":\"00\"}", "32 hex digits");
	expect_refused("{\"format\":1,\"role\":\"client\",\"run\":\"00112233445566778899AABBCCDDEEFF\"}", "hex digits");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":-1}", "\"step\" is not a number");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":1000000000000}", "\"step\" is not a number");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":1.5}", "\"step\" is not a number");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":1,\"state_bytes\":\"9\"}", "state_bytes");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":1,\"state_bytes\":9,\"state_xxh3\":\"1\"}",
		       "state_xxh3");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":1,\"state_bytes\":9," HASH "\"spec\":[]}",
		       "no object \"spec\"");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":1,\"state_bytes\":9," HASH "\"spec\":{}}",
		       "no object \"progress\"");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":1,\"state_bytes\":9," HASH
		       "\"spec\":{\"a\":1},\"progress\":{}}",
		       "no text");
	expect_refused("{\"format\":1,\"role\":\"client\"," RUN "\"step\":1,\"state_bytes\":9," HASH
		       "\"spec\":{\"a\":\"\\u001b[2J\"},\"progress\":{}}",
		       "no text");
	expect_refused("{\"format\":1,\"format\":1,\"role\":\"client\"," REST, "duplicate");
}

static void manifest_of_too_many_entries_or_bytes_is_refused(void **state)
{
	(void)state;
	char json[4096];
	struct gp_err err;
	struct gp_manifest m;
	int n = snprintf(json, sizeof json, "%s",
			 "{\"format\":1,\"role\":\"client\"," RUN "\"step\":1,\"state_bytes\":9," HASH "\"spec\":{");
	for (int i = 0; i <= GP_MANIFEST_PAIRS; i++)
		n += snprintf(json + n, sizeof json - (size_t)n, "%s\"k%d\":\"v\"", i ? "," : "", i);
	snprintf(json + n, sizeof json - (size_t)n, "},\"progress\":{}}");
	expect_refused(json, "more than 64");
	static char blanks[GP_MANIFEST_BYTES + 1];
	memset(blanks, ' ', sizeof blanks);
	assert_int_equal(gp_manifest_parse(blanks, sizeof blanks, &m, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "too many"));
}

static void setting_that_differs_is_named(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_manifest run = manifest_of(1), now = manifest_of(1);
	now.spec.pair[0].value = "128";
	assert_int_equal(gp_pairs_compare(&run.spec, &now.spec, "--", &err), GP_INVALID);
	assert_string_equal(err.text, "--batch is '128', but the run has it at '64'");
	now = manifest_of(1);
	now.spec.count--;
	assert_int_equal(gp_pairs_compare(&run.spec, &now.spec, "--", &err), GP_INVALID);
	assert_non_null(strstr(err.text, "the run was begun with --codec-act-up '"));
	assert_int_equal(gp_pairs_compare(&now.spec, &run.spec, "--", &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--codec-act-up is '"));
	assert_non_null(strstr(err.text, "the run was begun without"));
	now = manifest_of(1); /* long values from shortly before they differ */
	run.spec.pair[0].value = "uniform:bits=8 uniform:bits=8 uniform:bits=8 uniform:bits=8 uniform:bits=8 bf16";
	now.spec.pair[0].value = "uniform:bits=8 uniform:bits=8 uniform:bits=8 uniform:bits=8 uniform:bits=8 bf16+zstd";
	assert_int_equal(gp_pairs_compare(&run.spec, &now.spec, "--", &err), GP_INVALID);
	assert_string_equal(
		err.text, "--batch is '... uniform:bits=8 bf16+zstd', but the run has it at '... uniform:bits=8 bf16'");
}

static void text_that_is_no_utf8_is_not_written(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_manifest m = manifest_of(1);
	gp_pairs_add(&m.spec, "data", "caf\xe9");
	assert_int_equal(gp_checkpoint_write(dir, &m, items, 2, NULL, &err), GP_INVALID);
	expect_steps(0, NULL);
}

/* --- damage ----------------------------------------------------------------------------------------------------- */

static void flip_byte(const char *path, off_t at)
{
	uint8_t byte;
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x40;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void expect_damage(uint64_t step, const char *words)
{
	struct gp_err err = {0};
	struct gp_checkpoint *c = NULL;
	assert_int_equal(gp_checkpoint_open(dir, step, &c, &err), GP_INVALID);
	assert_null(c);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
}

static void damaged_checkpoints_are_refused(void **state)
{
	(void)state;
	struct stat st;
	for (uint64_t s = 1; s <= 5; s++)
		write_step(s);
	assert_int_equal(stat(in_step(1, "state.safetensors"), &st), 0);
	flip_byte(in_step(1, "state.safetensors"), st.st_size - 1);
	expect_damage(1, "is damaged");
	assert_int_equal(truncate(in_step(2, "state.safetensors"), st.st_size - 1), 0);
	expect_damage(2, "its manifest says");
	assert_int_equal(unlink(in_step(3, "manifest.json")), 0);
	expect_damage(3, "manifest.json");
	assert_int_equal(unlink(in_step(4, "state.safetensors")), 0);
	expect_damage(4, "state.safetensors");
	char command[320];
	snprintf(command, sizeof command, "mv '%s/step-000000000005' '%s/step-000000000009'", dir, dir);
	assert_int_equal(system(command), 0);
	expect_damage(9, "of step 5");
	expect_damage(77, "cannot open");
}

/* --- failures --------------------------------------------------------------------------------------------------- */

/* Fails the first, second, ... event of a kind until a write comes through; the older ones stay whole throughout. */
static void walk(enum gp_fault_kind kind, int at_least)
{
	struct gp_err err;
	struct gp_manifest m = manifest_of(30);
	int failed = 0, lock;
	for (uint64_t n = 1; n < 1000; n++) {
		gp_fault_arm(kind, n);
		enum gp_status status = gp_checkpoint_write(dir, &m, items, 2, NULL, &err);
		gp_fault_arm(kind, 0);
		expect_whole(10);
		expect_whole(20);
		if (status == GP_OK)
			break;
		failed++;
		assert_true(err.code == GP_IO || err.code == GP_NOMEM);
		expect_steps(2, (uint64_t[]){20, 10});
		assert_int_equal(gp_checkpoint_lock(dir, &lock, &err), GP_OK);
		gp_checkpoint_unlock(lock);
	}
	expect_steps(3, (uint64_t[]){30, 20, 10});
	expect_whole(30);
	assert_true(failed >= at_least);
	assert_int_equal(gp_checkpoint_remove(dir, 30, &err), GP_OK);
}

static void failed_write_leaves_the_older_ones_whole(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	write_step(10);
	write_step(20);
	walk(GP_FAULT_WRITE, 4);
	walk(GP_FAULT_FSYNC, 4);
	walk(GP_FAULT_ALLOC, 2);
	walk(GP_FAULT_READ, 1); /* for the hash */
}

static void failed_allocation_while_reading_is_an_error(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_checkpoint *c = NULL;
#ifndef GP_FAULTS
	skip();
#endif
	write_step(1);
	for (uint64_t n = 1; !c; n++) {
		assert_true(n < 100);
		gp_fault_arm(GP_FAULT_ALLOC, n);
		enum gp_status status = gp_checkpoint_open(dir, 1, &c, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		assert_true(status == GP_OK || (status == GP_NOMEM && !c));
	}
	gp_checkpoint_close(c);
}

static void folder_that_cannot_be_is_a_clear_error(void **state)
{
	(void)state;
	struct gp_err err;
	int lock;
	snprintf(dir, sizeof dir, "%s/file", root);
	assert_int_equal(gp_write_file(dir, "x", 1, &err), GP_OK);
	assert_int_equal(gp_checkpoint_lock(dir, &lock, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "Not a directory"));
	snprintf(dir, sizeof dir, "%s/a/b/c", root);
	assert_int_equal(gp_checkpoint_lock(dir, &lock, &err), GP_OK);
	gp_checkpoint_unlock(lock);
	assert_int_equal(gp_make_folder("", &err), GP_INVALID);
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_ROOT(what_is_written_is_read_back),
		WITH_ROOT(files_are_for_their_owner_alone),
		WITH_ROOT(checkpoint_of_the_same_step_is_replaced),
		WITH_ROOT(newest_are_listed_first_and_kept),
		WITH_ROOT(links_in_the_place_of_checkpoints_are_removed_and_what_they_point_to_stays),
		WITH_ROOT(folder_belongs_to_one_process_and_leftovers_go),
		WITH_ROOT(folder_of_somebody_else_is_refused_and_nothing_in_it_is_touched),
		WITH_ROOT(checkpoint_is_confirmed_until_it_is_written_again),
		cmocka_unit_test(manifest_that_lies_is_refused_with_a_clear_message),
		cmocka_unit_test(manifest_of_too_many_entries_or_bytes_is_refused),
		cmocka_unit_test(setting_that_differs_is_named),
		WITH_ROOT(text_that_is_no_utf8_is_not_written),
		WITH_ROOT(damaged_checkpoints_are_refused),
		WITH_ROOT(failed_write_leaves_the_older_ones_whole),
		WITH_ROOT(failed_allocation_while_reading_is_an_error),
		WITH_ROOT(folder_that_cannot_be_is_a_clear_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
