/* SPDX-License-Identifier: Apache-2.0
 *
 * What gpclient report makes of logs: reading them (client/report/report_read.h), thinning (report_series.h), axes
 * (report_axis.h), texts of anybody (report_html.h), and the page (report_page.h), which is well-formed whatever a log
 * holds.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/report/report_axis.h"
#include "client/report/report_html.h"
#include "client/report/report_page.h"
#include "client/report/report_read.h"
#include "tests/unit/ok.h"
#include "tests/well_formed.h"

#define HEADER "{\"event\":\"header\",\"elapsed_s\":0,\"server\":\"s\",\"model\":\"cnn\",\"total_steps\":9}\n"
#define PNG    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA="

static struct gp_report_run run;

/* The status, and the run, of a log with this text. */
static enum gp_status read_text(const char *text, size_t length)
{
	char path[] = "/tmp/test_report.XXXXXX";
	const int fd = mkstemp(path);
	assert_true(fd >= 0 && write(fd, text, length) == (ssize_t)length);
	close(fd);
	OK(gp_report_run_init(&run, "log", &err));
	const enum gp_status status = gp_report_read(path, &run, &err);
	unlink(path);
	return status;
}

#define READ(text) read_text(text, sizeof(text) - 1)

static int forget(void **state)
{
	(void)state;
	gp_report_run_deinit(&run);
	return 0;
}

/* Parts of the message. */
static void assert_told(const char *const *part)
{
	for (; *part; part++)
		if (!strstr(err.text, *part))
			fail_msg("'%s' does not say '%s'", err.text, *part);
}

#define TOLD(...) assert_told((const char *const[]){__VA_ARGS__, NULL})

/* --- reading ----------------------------------------------------------------------------------------------------------- */

static void a_malformed_line_is_named_with_file_and_line(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "{\"event\":\"step\",\"step\":1}\n{\"ev\n{\"event\":\"step\",\"step\":2}\n"),
			 GP_INVALID);
	TOLD("/tmp/test_report.", ":3: ", "no JSON", "--log-json");
}

static void a_step_without_its_number_is_refused(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "{\"event\":\"step\",\"step\":\"1\"}\n"), GP_INVALID);
	TOLD(":2: ", "\"step\"");
}

static void another_kind_of_file_is_refused(void **state)
{
	(void)state;
	assert_int_equal(READ("{\"a\":1}\n"), GP_INVALID);
	TOLD(":1: ", "\"event\"");
	forget(NULL);
	assert_int_equal(READ("\n"), GP_INVALID);
	TOLD("no event", "--log-json");
	forget(NULL);
	assert_int_equal(READ("\x7f"
			      "ELF\0\0\0\n\n"),
			 GP_INVALID);
	TOLD(":1: ");
}

static void a_malformed_line_does_not_reach_the_terminal_as_it_is(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "{\"event\" \"\xc2\x9b"
				     "2J\x7f\"}\n{}\n"),
			 GP_INVALID); /* CSI, DEL */
	for (const char *c = err.text; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			fail_msg("a byte %#x is in '%s'", (unsigned char)*c, err.text);
	TOLD(":2: ", "no JSON");
}

static void a_last_line_that_breaks_off_is_left_out_with_a_notice(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "{\"event\":\"step\",\"step\":1}\n{\"event\":\"st"), GP_OK);
	assert_int_equal(run.steps, 1);
	assert_int_equal(run.notices, 1);
	assert_non_null(strstr(run.notice[0], "line 3"));
}

/* As a file has behind a power cut. */
static void zeros_at_the_end_are_a_line_that_breaks_off(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "\0\0\0\0\0\0"), GP_OK);
	assert_int_equal(run.notices, 1);
}

static void a_line_that_breaks_off_where_the_run_was_resumed_is_left_out(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "{\"event\":\"step\",\"step\":1}\n{\"eve\n" HEADER
				     "{\"event\":\"resume\",\"step\":1}\n{\"event\":\"step\",\"step\":2}\n"),
			 GP_OK);
	assert_int_equal(run.notices, 1);
	assert_int_equal(run.processes, 2);
	assert_int_equal(run.steps, 2);
}

static void unknown_events_are_passed_over(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "{\"event\":\"tomorrow\",\"step\":[]}\n{\"event\":\"step\",\"step\":3}"), GP_OK);
	assert_int_equal(run.events, 2);
	assert_int_equal(run.notices, 0);
}

static void steps_that_were_repeated_are_drawn_once(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "{\"event\":\"step\",\"step\":1,\"loss\":3,\"wire_up_bytes\":10}\n"
				     "{\"event\":\"step\",\"step\":2,\"loss\":9,\"wire_up_bytes\":10}\n"
				     "{\"event\":\"resume\",\"step\":1}\n"
				     "{\"event\":\"step\",\"step\":2,\"loss\":2,\"wire_up_bytes\":10}\n"),
			 GP_OK);
	assert_int_equal(run.step.count, 2);
	assert_float_equal(gp_series_mean(&run.step, 1, GP_STEP_LOSS), 2, 1e-9);
	assert_float_equal(run.up_bytes, 30, 0); /* they did cross */
}

static void times_of_processes_add_up(void **state)
{
	(void)state;
	assert_int_equal(
		READ("{\"event\":\"header\",\"elapsed_s\":0}\n{\"event\":\"step\",\"step\":1,\"elapsed_s\":5}\n"
		     "{\"event\":\"header\",\"elapsed_s\":0}\n{\"event\":\"step\",\"step\":2,\"elapsed_s\":2}\n"),
		GP_OK);
	assert_float_equal(run.step.point[1].time_s, 7, 1e-9);
}

static void a_run_ends_as_its_log_says(void **state)
{
	(void)state;
	assert_int_equal(READ(HEADER "{\"event\":\"end\",\"report\":{\"stopped\":true}}"), GP_OK);
	assert_int_equal(run.state, GP_RUN_STOPPED);
	forget(NULL);
	assert_int_equal(READ(HEADER "{\"event\":\"error\",\"message\":\"no server\"}"), GP_OK);
	assert_int_equal(run.state, GP_RUN_FAILED);
	assert_string_equal(run.message, "no server");
	forget(NULL);
	assert_int_equal(READ(HEADER), GP_OK);
	assert_int_equal(run.state, GP_RUN_UNFINISHED);
}

static void a_line_of_very_many_values_is_refused(void **state)
{
	(void)state;
	static const char begin[] = "{\"event\":\"x\",\"a\":[", end[] = "{}]}";
	const size_t count = GP_REPORT_LINE_MARKS / 2, room = sizeof begin + 3 * count + sizeof end;
	char *const text = malloc(room), *at = text + sizeof begin - 1;
	assert_non_null(text);
	memcpy(text, begin, sizeof begin);
	for (size_t i = 0; i < count; i++, at += 3)
		memcpy(at, "{},", 3);
	memcpy(at, end, sizeof end);
	const enum gp_status status = read_text(text, strlen(text));
	free(text);
	assert_int_equal(status, GP_INVALID);
	TOLD(":1: ", "too many values");
}

static void a_line_without_end_is_refused(void **state)
{
	(void)state;
	OK(gp_report_run_init(&run, "zero", &err));
	assert_int_equal(gp_report_read("/dev/zero", &run, &err), GP_INVALID);
	TOLD("/dev/zero:1: ", "MiB");
}

static void pictures_are_taken_that_are_pictures(void **state)
{
	(void)state;
	assert_true(gp_html_is_picture(PNG));
	assert_false(gp_html_is_picture(NULL));
	assert_false(gp_html_is_picture("https://example.org/a.png"));
	assert_false(gp_html_is_picture("data:image/svg+xml;base64,PHN2Zz4="));
	assert_false(gp_html_is_picture("data:image/png;base64,AAAA"));
	assert_false(gp_html_is_picture(PNG "\"><script>"));
	assert_false(gp_html_is_picture("data:image/png;base64,iVBORw0KGgoAAAANSUhEUg"));
	assert_false(gp_html_is_picture("data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=="));
	/* 1024 x 1024, 1025 x 1, 1 x 60000 */
	assert_true(gp_html_is_picture("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAABAAAAAQA"));
	assert_false(gp_html_is_picture("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAABAEAAAAB"));
	assert_false(gp_html_is_picture("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAOpg"));
	assert_int_equal(READ("{\"event\":\"attack\",\"pictures\":[{\"original\":\"" PNG "\",\"restored\":\"" PNG
			      "\"},{\"original\":\"" PNG "\",\"restored\":\"http:x\"}]}"),
			 GP_OK);
	assert_int_equal(run.attack[0].pictures, 1);
	assert_int_equal(run.notices, 1);
}

/* --- thinning ---------------------------------------------------------------------------------------------------------- */

static void a_series_of_a_million_records_keeps_its_means(void **state)
{
	(void)state;
	struct gp_series s;
	OK(gp_series_init(&s, 2, &err));
	for (uint64_t i = 1; i <= 1000000; i++) {
		const struct gp_series_place at = {.step = i, .time_s = (double)i, .bytes = 2.0 * (double)i};
		const double figure[2] = {(double)i, i % 2 ? NAN : 7};
		gp_series_add(&s, &at, figure);
	}
	assert_in_range(s.count, GP_SERIES_POINTS / 4, GP_SERIES_POINTS);
	assert_int_equal(s.point[0].first, 1);
	assert_int_equal(s.point[s.count - 1].last, 1000000);
	for (int i = 0; i < s.count; i++) {
		const struct gp_series_point *p = &s.point[i];
		assert_float_equal(gp_series_mean(&s, i, 0), (double)(p->first + p->last) / 2, 1e-6);
		assert_float_equal(gp_series_mean(&s, i, 1), 7, 1e-9);
	}
	assert_float_equal(gp_series_mean_of_all(&s, 0), 500000.5, 1e-6);
	gp_series_deinit(&s);
}

static void what_is_not_known_stays_unknown(void **state)
{
	(void)state;
	struct gp_series s;
	const struct gp_series_place at = {.step = 1};
	const double figure = NAN;
	OK(gp_series_init(&s, 1, &err));
	assert_true(isnan(gp_series_mean_of_all(&s, 0)));
	gp_series_add(&s, &at, &figure);
	assert_true(isnan(gp_series_mean(&s, 0, 0)));
	gp_series_deinit(&s);
}

/* --- axes ---------------------------------------------------------------------------------------------------------------- */

static void assert_axis(double low, double high, enum gp_unit unit, const char *wanted)
{
	const struct gp_axis a = gp_axis_around(low, high, unit, 5);
	char text[GP_AXIS_TEXT], all[256] = "";
	for (int i = 0; i < a.ticks; i++)
		snprintf(all + strlen(all), sizeof all - strlen(all), "%s ", gp_axis_text(&a, a.tick[i], text));
	snprintf(all + strlen(all), sizeof all - strlen(all), "%s", a.suffix);
	assert_string_equal(all, wanted);
}

static void an_axis_has_round_marks_around_all_values(void **state)
{
	(void)state;
	assert_axis(0, 1, GP_UNIT_NONE, "0.0 0.2 0.4 0.6 0.8 1.0 ");
	assert_axis(0.013, 0.047, GP_UNIT_NONE, "0.01 0.02 0.03 0.04 0.05 ");
	assert_axis(1, 468, GP_UNIT_COUNT, "0 100 200 300 400 500 ");
	assert_axis(1, 3, GP_UNIT_COUNT, "1 2 3 ");
	assert_axis(0, 0.93, GP_UNIT_SHARE, "0 20 40 60 80 100 %");
	assert_axis(0, 12.3e6, GP_UNIT_BYTES, "0 5 10 15 MB");
	assert_axis(0, 0.0042, GP_UNIT_SECONDS, "0 1 2 3 4 5 ms");
	assert_axis(0, 7200, GP_UNIT_SECONDS, "0.0 0.5 1.0 1.5 2.0 h");
	assert_axis(-0.3, 0.3, GP_UNIT_NONE, "-0.4 -0.2 0.0 0.2 0.4 ");
	assert_axis(0.99996, 0.99998, GP_UNIT_NONE, "0.999960 0.999965 0.999970 0.999975 0.999980 ");
}

static void an_axis_of_any_values_holds_them(void **state)
{
	(void)state;
	static const double value[] = {0, 1e-300, -1e-300,  5e-324, 1e308, -1e308, 1e15, 1e15 + 0.125,
				       1, -1,     INFINITY, NAN,    3.7,   1e30};
	const int count = sizeof value / sizeof value[0];
	for (int i = 0; i < count; i++)
		for (int k = 0; k < count; k++)
			for (int unit = 0; unit < GP_UNITS; unit++) {
				const struct gp_axis a = gp_axis_around(value[i], value[k], (enum gp_unit)unit, 5);
				char text[GP_AXIS_TEXT];
				assert_true(a.ticks >= 2 && a.ticks <= GP_AXIS_TICKS && a.high > a.low);
				assert_true(isfinite(a.low) && isfinite(a.high));
				gp_unit_text((enum gp_unit)unit, value[i], text);
				assert_true(strlen(text) < GP_AXIS_TEXT - 1);
			}
}

static void a_value_is_written_with_its_unit(void **state)
{
	(void)state;
	char text[GP_AXIS_TEXT];
	assert_string_equal(gp_unit_text(GP_UNIT_BYTES, 1770000, text), "1.770 MB");
	assert_string_equal(gp_unit_text(GP_UNIT_SECONDS, 0.1224, text), "122.4 ms");
	assert_string_equal(gp_unit_text(GP_UNIT_SHARE, 0.8926, text), "89.26 %");
	assert_string_equal(gp_unit_text(GP_UNIT_COUNT, 468, text), "468");
	assert_string_equal(gp_unit_text(GP_UNIT_SHARE, 1e308, text), "-");
	assert_string_equal(gp_unit_text(GP_UNIT_BYTES_PER_S, NAN, text), "-");
}

/* --- texts ---------------------------------------------------------------------------------------------------------------- */

static void assert_text(const char *text, const char *wanted)
{
	struct gp_html h = {0};
	gp_html_text(&h, text);
	assert_int_equal(h.length, strlen(wanted));
	assert_memory_equal(h.text, wanted, h.length);
	gp_html_deinit(&h);
}

static void no_text_is_markup(void **state)
{
	(void)state;
	assert_text("<b a=\"x\" b='y'>&amp;</b>", "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;&lt;/b&gt;");
	assert_text("a\x01\x1b\x7f\xc2\x85", "a?????");
	assert_text("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
	assert_text("\xff \xc3 \xc0\xaf \xed\xa0\x80 \xef\xbf\xbe \xf4\x90\x80\x80", "? ? ?? ??? ??? ????");
}

static void a_page_has_a_limit(void **state)
{
	(void)state;
	struct gp_html h = {0};
	char *text = calloc(1, (1u << 20) + 1);
	memset(text, 'x', 1u << 20);
	for (int i = 0; i < 70 && !h.too_long; i++)
		gp_html_put_all(&h, text);
	assert_int_equal(gp_html_check(&h, &err), GP_INVALID);
	TOLD("fewer logs");
	gp_html_deinit(&h);
	free(text);
}

/* --- the page --------------------------------------------------------------------------------------------------------------- */

static void count_in(const struct gp_html *h, const char *text, int wanted)
{
	int n = 0;
	for (const char *at = h->text; (at = memmem(at, (size_t)(h->text + h->length - at), text, strlen(text))); at++)
		n++;
	if (n != wanted)
		fail_msg("'%s' is there %d times and not %d", text, n, wanted);
}

static void make_page(struct gp_html *h, const struct gp_report_run *list, int count)
{
	size_t where;
	OK(gp_report_page(h, list, count, &err));
	const char *fault = page_fault(h->text, h->length, &where);
	if (fault)
		fail_msg("%s at %.80s", fault, h->text + where);
	count_in(h, "http:", 0);
	count_in(h, "https:", 0);
	count_in(h, "@import", 0);
	count_in(h, "<script>", 1);
}

static void a_seed_becomes_a_page(const char *name, struct gp_html *h)
{
	char path[128];
	snprintf(path, sizeof path, "tests/fuzz/corpus/report_log/%s", name);
	OK(gp_report_run_init(&run, name, &err));
	OK(gp_report_read(path, &run, &err));
	make_page(h, &run, 1);
}

static void a_page_has_a_section_for_all_that_a_log_has(void **state)
{
	(void)state;
	static const char *const id[] = {"runs",  "learning", "time",    "step",  "link",
					 "bytes", "codec",    "privacy", "values"};
	struct gp_html h = {0};
	a_seed_becomes_a_page("all_events", &h);
	for (size_t i = 0; i < sizeof id / sizeof id[0]; i++) {
		char text[64];
		snprintf(text, sizeof text, "<h2 id=\"%s\">", id[i]);
		count_in(&h, text, 1);
		snprintf(text, sizeof text, "<a href=\"#%s\">", id[i]);
		count_in(&h, text, 1);
	}
	count_in(&h, "<img ", 2);
	count_in(&h, "20.5 dB; the mean picture in place of each has 10.25 dB; distance correlation 0.700.", 1);
	count_in(&h, "&lt;the wire&gt; &amp; &quot;more&quot;", 1);
	gp_html_deinit(&h);
}

static void dependence_on_inputs_and_on_labels_is_drawn(void **state)
{
	(void)state;
	struct gp_html h = {0};
	assert_int_equal(READ(HEADER "{\"event\":\"privacy\",\"step\":2,\"direction\":\"act_up\","
				     "\"distance_correlation\":0.5,\"label_correlation\":0.625}\n"
				     "{\"event\":\"privacy\",\"step\":2,\"direction\":\"grad_up\","
				     "\"distance_correlation\":0.25,\"label_correlation\":null}\n"),
			 GP_OK);
	make_page(&h, &run, 1);
	count_in(&h, "<figcaption>Distance correlation of inputs and act_up", 1);
	count_in(&h, "<figcaption>Distance correlation of labels and act_up", 1);
	count_in(&h, "<figcaption>Distance correlation of inputs and grad_up", 1);
	count_in(&h, "<figcaption>Distance correlation of labels", 1);
	count_in(&h, "<th scope=\"col\">correlation</th>", 1);
	count_in(&h, "<td class=\"n\">0.500 act_up</td>", 1);
	gp_html_deinit(&h);
}

static void runs_say_how_they_saved_memory(void **state)
{
	struct gp_html h = {0};
	assert_int_equal(READ("{\"event\":\"header\",\"model\":\"cnn\",\"compress\":\"maps=fp16\"}\n"), GP_OK);
	make_page(&h, &run, 1);
	count_in(&h, "--compress maps=fp16", 1);
	gp_html_deinit(&h);
	forget(state);
	assert_int_equal(READ("{\"event\":\"header\",\"model\":\"cnn\",\"recompute\":true,\"compress\":null}\n"),
			 GP_OK);
	make_page(&h, &run, 1);
	count_in(&h, "--recompute", 1);
	count_in(&h, "--compress", 0);
	gp_html_deinit(&h);
}

#define MEASURED(step, direction, value)                                                                               \
	"{\"event\":\"privacy\",\"step\":" step ",\"direction\":\"" direction "\",\"distance_correlation\":" value "}" \
	"\n"

/* The mean over the run, in the direction that gives away most, however little that is; - where nobody has measured. */
static void the_table_of_runs_has_the_correlation_beside_accuracy_and_bytes(void **state)
{
	struct gp_html h = {0};
	assert_int_equal(READ(HEADER MEASURED("2", "act_up", "-0.25") MEASURED("2", "grad_down", "0.125")
				      MEASURED("4", "act_up", "-0.5") MEASURED("4", "grad_down", "0.375")),
			 GP_OK);
	make_page(&h, &run, 1);
	count_in(&h, "<td class=\"n\">0.250 grad_down</td>", 1);
	gp_html_deinit(&h);
	forget(state);
	assert_int_equal(READ(HEADER MEASURED("2", "act_up", "-0.25")), GP_OK);
	make_page(&h, &run, 1);
	count_in(&h, "<td class=\"n\">-0.250 act_up</td>", 1);
	gp_html_deinit(&h);
	forget(state);
	assert_int_equal(READ(HEADER), GP_OK);
	make_page(&h, &run, 1);
	count_in(&h, "act_up</td>", 0);
	gp_html_deinit(&h);
}

/* As `attack --log-json` begins one. */
static void a_log_of_an_attack_alone_says_that_it_has_no_training(void **state)
{
	(void)state;
	struct gp_html h = {0};
	assert_int_equal(
		READ("{\"event\":\"attack\",\"model\":\"cnn\",\"cut\":\"1:-1\",\"codec\":\"raw\",\"psnr_db\":20}\n"),
		GP_OK);
	make_page(&h, &run, 1);
	count_in(&h, "no training in this log", 1);
	count_in(&h, "still under way", 0);
	count_in(&h, "; its attack is under <a href=\"#privacy\">", 1);
	count_in(&h, "<h2 id=\"privacy\">", 1);
	count_in(&h, "- / -", 0);
	gp_html_deinit(&h);
}

static void texts_of_a_log_stay_texts(void **state)
{
	(void)state;
	struct gp_html h = {0};
	a_seed_becomes_a_page("hostile_texts", &h);
	count_in(&h, "javascript:", 0);
	count_in(&h, "<img ", 0);
	count_in(&h, "alert(1)</script>", 0);
	gp_html_deinit(&h);
}

static void huge_numbers_give_a_page(void **state)
{
	(void)state;
	struct gp_html h = {0};
	a_seed_becomes_a_page("huge_numbers", &h);
	assert_in_range(h.length, 1, 200000);
	gp_html_deinit(&h);
}

static void several_runs_share_charts(void **state)
{
	(void)state;
	struct gp_report_run runs[GP_REPORT_RUNS_MAX];
	struct gp_html h = {0};
	for (int i = 0; i < GP_REPORT_RUNS_MAX; i++) {
		char name[16];
		snprintf(name, sizeof name, "run-%d<", i);
		OK(gp_report_run_init(&runs[i], name, &err));
		OK(gp_report_read("tests/fuzz/corpus/report_log/all_events", &runs[i], &err));
	}
	make_page(&h, runs, GP_REPORT_RUNS_MAX);
	count_in(&h, "<figcaption>Loss against steps</figcaption>", 1);
	count_in(&h, "<tr><th scope=\"row\"><svg class=\"swatch\"", GP_REPORT_RUNS_MAX);
	for (int i = 0; i < GP_REPORT_RUNS_MAX; i++)
		gp_report_run_deinit(&runs[i]);
	gp_html_deinit(&h);
}

/* A million steps: every chart has at most GP_SERIES_POINTS points of each line. */
static void a_long_run_has_a_short_page(void **state)
{
	(void)state;
	struct gp_html h = {0};
	OK(gp_report_run_init(&run, "long", &err));
	for (int i = 1; i <= 20000; i++) {
		json_t *line = json_pack("{s:s, s:i, s:f, s:f, s:f}", "event", "step", "step", i, "loss", 1.0 / i,
					 "acc", 0.5, "seconds", 0.1 + i % 7);
		OK(gp_report_event(&run, line, &err));
		json_decref(line);
	}
	make_page(&h, &run, 1);
	assert_in_range(h.length, 10000, 400000);
	count_in(&h, "Long runs are thinned", 1);
	gp_html_deinit(&h);
}

int main(void)
{
#define WITH_RUN(test) cmocka_unit_test_teardown(test, forget)
	const struct CMUnitTest tests[] = {
		WITH_RUN(a_malformed_line_is_named_with_file_and_line),
		WITH_RUN(a_step_without_its_number_is_refused),
		WITH_RUN(another_kind_of_file_is_refused),
		WITH_RUN(a_malformed_line_does_not_reach_the_terminal_as_it_is),
		WITH_RUN(a_last_line_that_breaks_off_is_left_out_with_a_notice),
		WITH_RUN(zeros_at_the_end_are_a_line_that_breaks_off),
		WITH_RUN(a_line_that_breaks_off_where_the_run_was_resumed_is_left_out),
		WITH_RUN(unknown_events_are_passed_over),
		WITH_RUN(steps_that_were_repeated_are_drawn_once),
		WITH_RUN(times_of_processes_add_up),
		WITH_RUN(a_run_ends_as_its_log_says),
		WITH_RUN(a_line_of_very_many_values_is_refused),
		WITH_RUN(a_line_without_end_is_refused),
		WITH_RUN(pictures_are_taken_that_are_pictures),
		cmocka_unit_test(a_series_of_a_million_records_keeps_its_means),
		cmocka_unit_test(what_is_not_known_stays_unknown),
		cmocka_unit_test(an_axis_has_round_marks_around_all_values),
		cmocka_unit_test(an_axis_of_any_values_holds_them),
		cmocka_unit_test(a_value_is_written_with_its_unit),
		cmocka_unit_test(no_text_is_markup),
		cmocka_unit_test(a_page_has_a_limit),
		WITH_RUN(a_page_has_a_section_for_all_that_a_log_has),
		WITH_RUN(dependence_on_inputs_and_on_labels_is_drawn),
		WITH_RUN(the_table_of_runs_has_the_correlation_beside_accuracy_and_bytes),
		WITH_RUN(a_log_of_an_attack_alone_says_that_it_has_no_training),
		WITH_RUN(texts_of_a_log_stay_texts),
		WITH_RUN(huge_numbers_give_a_page),
		cmocka_unit_test(several_runs_share_charts),
		WITH_RUN(runs_say_how_they_saved_memory),
		WITH_RUN(a_long_run_has_a_short_page),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
