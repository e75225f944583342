/* SPDX-License-Identifier: Apache-2.0
 *
 * What a client computes in beside a server (client/engine/precision.h): its own
 * choice, the body's where its device can, and refusals that give the true
 * reason.
 */
#include <string.h>

#include "client/engine/precision.h"
#include "kernels/cpu/math/bf16.h"
#include "kernels/loops/simd.h"
#include "tests/unit/bf16_reference.h"
#include "tests/unit/ok.h"

enum choice { AUTO, FP32, BF16, TF32 };

static enum gp_status settle(int body, enum choice choice, bool local, enum gp_precision *out)
{
	const struct gp_client_precision p = {
		.device = "cpu", .threads = 1, .local = local, .body = body, .choice = (int)choice};
	*out = GP_PRECISIONS;
	bool tries;
	const enum gp_status status = gp_client_precision_settle(&p, out, &tries, &err);
	assert_true(status != GP_OK || tries == (body == (int)GP_PRECISION_AUTO && choice == AUTO && !local));
	return status;
}

static void expect(int body, enum choice choice, bool local, enum gp_precision want)
{
	enum gp_precision got;
	OK(settle(body, choice, local, &got));
	assert_string_equal(gp_precision_name(got), gp_precision_name(want));
}

static void expect_refused(int body, enum choice choice, bool local, int exit_status, const char *part)
{
	enum gp_precision got;
	const enum gp_status status = settle(body, choice, local, &got);
	assert_int_equal(gp_status_exit(status), exit_status);
	if (!strstr(err.text, part))
		fail_msg("no '%s' in: %s", part, err.text);
	assert_int_equal(got, GP_PRECISIONS);
}

static void a_processor_stays_in_fp32_beside_a_server_in_tf32(void **state)
{
	(void)state;
	expect(GP_PRECISION_TF32, AUTO, false, GP_PRECISION_FP32);
	expect(GP_PRECISION_TF32, FP32, false, GP_PRECISION_FP32);
	expect(GP_PRECISION_FP32, AUTO, false, GP_PRECISION_FP32);
}

static void a_processor_follows_in_bf16_where_it_can(void **state)
{
	(void)state;
	const bool can = gp_bf16_supported();
	expect(GP_PRECISION_BF16, AUTO, false, can ? GP_PRECISION_BF16 : GP_PRECISION_FP32);
	expect(GP_PRECISION_BF16, FP32, false, GP_PRECISION_FP32);
	if (can)
		expect(GP_PRECISION_TF32, BF16, false, GP_PRECISION_BF16);
	gp_isa_limit(ISA_WITHOUT_BF16);
	expect(GP_PRECISION_BF16, AUTO, false, GP_PRECISION_FP32);
	gp_isa_limit(GP_ISA_AVX512);
}

static void what_was_chosen_and_cannot_be_had_is_refused_with_the_reason(void **state)
{
	(void)state;
	expect_refused(GP_PRECISION_FP32, TF32, false, 5,
		       "--client-precision: cpu cannot compute in tf32 (only GPUs can)");
	gp_isa_limit(ISA_WITHOUT_BF16);
	expect_refused(GP_PRECISION_FP32, BF16, false, 5,
		       "--client-precision: cpu cannot compute in bf16 (" GP_BF16_FEATURE " is missing)");
	gp_isa_limit(GP_ISA_AVX512);
}

static void a_local_run_has_one_precision(void **state)
{
	(void)state;
	expect(GP_PRECISION_TF32, AUTO, true, GP_PRECISION_TF32); /* its plan says what the device lacks */
	expect(GP_PRECISION_BF16, BF16, true, GP_PRECISION_BF16);
	expect_refused(GP_PRECISION_BF16, FP32, true, 2, "--client-precision fp32: a local run computes everything in");
}

/* Until its engine has found the fastest: fp32. */
static void beside_a_body_that_tries_this_side_tries_too(void **state)
{
	(void)state;
	expect(GP_PRECISION_AUTO, AUTO, false, GP_PRECISION_FP32);
	expect(GP_PRECISION_AUTO, AUTO, true, GP_PRECISION_FP32);
	expect(GP_PRECISION_AUTO, FP32, false, GP_PRECISION_FP32);
	expect_refused(GP_PRECISION_AUTO, FP32, true, 2,
		       "a local run computes everything in --precision, which is auto");
	expect_refused(GP_PRECISION_AUTO, TF32, false, 5, "cpu cannot compute in tf32");
}

static void a_device_that_does_not_open_is_no_reason_for_fp32(void **state)
{
	(void)state;
	const struct gp_client_precision p = {.device = "cpu:7", .threads = 1, .body = GP_PRECISION_TF32};
	enum gp_precision got;
	bool tries;
	assert_int_equal(gp_client_precision_settle(&p, &got, &tries, &err), GP_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_processor_stays_in_fp32_beside_a_server_in_tf32),
		cmocka_unit_test(a_processor_follows_in_bf16_where_it_can),
		cmocka_unit_test(what_was_chosen_and_cannot_be_had_is_refused_with_the_reason),
		cmocka_unit_test(a_local_run_has_one_precision),
		cmocka_unit_test(beside_a_body_that_tries_this_side_tries_too),
		cmocka_unit_test(a_device_that_does_not_open_is_no_reason_for_fp32),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
