/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures as PNG (client/data/picture_png.h): what is read back is what was written.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/data/picture_png.h"
#include "tests/unit/ok.h"

enum { HEIGHT = 5, WIDTH = 7 };

static uint8_t pixels[HEIGHT * WIDTH * 3];

static struct gp_image picture(int channels)
{
	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = (uint8_t)(i * 37 + i / 11);
	return (struct gp_image){.pixels = pixels,
				 .height = HEIGHT,
				 .width = WIDTH,
				 .channels = channels,
				 .stride = (size_t)(WIDTH * channels)};
}

/* The decoder makes RGB of everything. */
static void check_bytes(const uint8_t *bytes, size_t len, int channels)
{
	struct gp_data_scratch scratch = {0};
	struct gp_image read;
	const struct gp_span file = {bytes, len};
	OK(gp_image_decode(&file, "test", &scratch, &read, &err));
	assert_int_equal(read.height, HEIGHT);
	assert_int_equal(read.width, WIDTH);
	for (int i = 0; i < HEIGHT * WIDTH * 3; i++)
		assert_int_equal(read.pixels[i], pixels[channels == 3 ? i : i / 3]);
	gp_data_scratch_deinit(&scratch);
}

static void a_picture_comes_back_as_it_was(void **state)
{
	struct gp_bytes png = {0};
	size_t len;
	(void)state;
	for (int channels = 1; channels <= 3; channels += 2) {
		const struct gp_image p = picture(channels);
		OK(gp_picture_png(&p, &png, &len, &err));
		check_bytes(png.data, len, channels);
	}
	gp_free_aligned(png.data);
}

static int digit_of(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = strchr(digits, c);
	assert_true(c && at);
	return (int)(at - digits);
}

static void a_url_holds_the_file_in_base64(void **state)
{
	static const char prefix[] = "data:image/png;base64,";
	uint8_t bytes[1024];
	size_t len = 0;
	char *url;
	(void)state;
	const struct gp_image p = picture(3);
	OK(gp_picture_png_url(&p, &url, &err));
	assert_memory_equal(url, prefix, strlen(prefix));
	const char *text = url + strlen(prefix);
	assert_int_equal(strlen(text) % 4, 0);
	for (; *text; text += 4) {
		const int last = text[3] == '=' ? text[2] == '=' ? 1 : 2 : 3;
		uint32_t three = 0;
		for (int i = 0; i < 4; i++)
			three = three << 6 | (uint32_t)(text[i] == '=' ? 0 : digit_of(text[i]));
		for (int i = 0; i < last; i++)
			bytes[len++] = (uint8_t)(three >> (16 - 8 * i));
	}
	check_bytes(bytes, len, 3);
	gp_free(url);
}

static void a_file_that_cannot_be_made_is_named(void **state)
{
	(void)state;
	const struct gp_image p = picture(1);
	assert_int_equal(gp_picture_png_file(&p, "/proc/no/such/folder/a.png", &err), GP_INVALID);
	assert_non_null(strstr(err.text, "/proc/no/such/folder/a.png"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_picture_comes_back_as_it_was),
		cmocka_unit_test(a_url_holds_the_file_in_base64),
		cmocka_unit_test(a_file_that_cannot_be_made_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
