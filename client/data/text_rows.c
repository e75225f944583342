/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_rows.h. Each thread takes the next part until there is none left;
 * every part has memory of its own, so nothing is moved in the end.
 * Test: tests/unit/test_data_texts.c
 */
#include "client/data/text_rows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "common/base/little_endian.h"
#include "common/base/mem.h"
#include "common/base/threads.h"

enum { ROWS_PER_PART = 1024, THREADS_MAX = 64 };

struct gp_text_part {
	int32_t *token;
	size_t tokens, room;
	size_t begin[ROWS_PER_PART + 1];  /* of each row, in `token` */
	int first_segment[ROWS_PER_PART]; /* of each row: tokens before those of segment 1 */
	int longest;
	uint32_t cut;
};

/* What the threads share. */
struct making {
	const struct gp_tokenizer *tokenizer;
	const struct gp_table *table;
	const char *path;
	int most;
	const struct gp_text_making *how;
	struct gp_text_rows *rows;
	atomic_uint next; /* part */
	atomic_uint done; /* rows */
	pthread_mutex_t lock;
	uint32_t failed_part; /* the first of those that failed; UINT32_MAX: none */
	struct gp_err err;    /* of that part, so that the message is the same whatever thread was first */
};

static enum gp_status keep_row(struct gp_text_part *p, const struct gp_token_row *row, struct gp_err *err)
{
	const size_t count = (size_t)row->count;
	if (p->room - p->tokens < count) {
		const size_t room = 2 * p->room + count + 4096;
		int32_t *token = gp_realloc(p->token, room, sizeof *token);
		if (!token)
			GP_FAIL(err, GP_NOMEM, "out of memory for %zu tokens", room);
		p->token = token;
		p->room = room;
	}
	memcpy(p->token + p->tokens, row->token, count * sizeof *p->token);
	p->tokens += count;
	p->longest = row->count > p->longest ? row->count : p->longest;
	p->cut += row->count < row->whole;
	return GP_OK;
}

static int first_segment(const struct gp_token_row *row)
{
	const uint8_t *second = memchr(row->segment, 1, (size_t)row->count);
	return second ? (int)(second - row->segment) : row->count;
}

static enum gp_status make_part(struct making *m, struct gp_token_scratch *s, uint32_t number, struct gp_err *err)
{
	struct gp_text_part *p = &m->rows->part[number];
	const uint32_t first = number * ROWS_PER_PART, left = m->table->rows - first;
	const uint32_t count = left < ROWS_PER_PART ? left : ROWS_PER_PART;
	for (uint32_t i = 0; i < count; i++) {
		const struct gp_table_row *row = &m->table->row[first + i];
		struct gp_token_row tokens;
		p->begin[i] = p->tokens;
		if (gp_tokenizer_row(m->tokenizer, s, row->text, row->pair, m->most, &tokens, err) != GP_OK)
			return gp_err_prefix(err, "%s:%u", m->path, row->line);
		GP_TRY(keep_row(p, &tokens, err));
		p->first_segment[i] = first_segment(&tokens);
	}
	p->begin[count] = p->tokens;
	atomic_fetch_add(&m->done, count);
	return GP_OK;
}

static void note_failure(struct making *m, uint32_t part, const struct gp_err *err)
{
	pthread_mutex_lock(&m->lock);
	if (part < m->failed_part) {
		m->failed_part = part;
		m->err = *err;
	}
	pthread_mutex_unlock(&m->lock);
	atomic_store(&m->next, m->rows->parts); /* those before it are under way or done */
}

static void make_parts(struct making *m, bool tells)
{
	struct gp_token_scratch *s = NULL;
	struct gp_err err;
	if (gp_token_scratch_new(m->tokenizer, &s, &err) != GP_OK) {
		note_failure(m, 0, &err);
		return;
	}
	uint32_t part;
	while ((part = atomic_fetch_add(&m->next, 1)) < m->rows->parts) {
		if (make_part(m, s, part, &err) != GP_OK)
			note_failure(m, part, &err);
		else if (tells && m->how->progress)
			m->how->progress(m->how->progress_arg, atomic_load(&m->done), m->table->rows);
	}
	gp_token_scratch_free(s);
}

static void *run_thread(void *arg)
{
	make_parts(arg, false);
	return NULL;
}

/* This thread and others; it does all of it where no other can be started. */
static void run_threads(struct making *m)
{
	pthread_t thread[THREADS_MAX];
	int wanted = gp_threads_count(m->how->threads), started = 0;
	wanted = wanted < THREADS_MAX ? wanted : THREADS_MAX;
	wanted = (uint32_t)wanted < m->rows->parts ? wanted : (int)m->rows->parts;
	while (started < wanted - 1 && pthread_create(&thread[started], NULL, run_thread, m) == 0)
		started++;
	make_parts(m, true);
	for (int i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
}

static void sum_up(struct gp_text_rows *r)
{
	for (uint32_t i = 0; i < r->parts; i++) {
		r->longest = r->part[i].longest > r->longest ? r->part[i].longest : r->longest;
		r->cut += r->part[i].cut;
	}
}

enum gp_status gp_text_rows_make(const struct gp_tokenizer *t, const char *path, const struct gp_table *table, int most,
				 const struct gp_text_making *how, struct gp_text_rows *out, struct gp_err *err)
{
	struct gp_text_rows rows = {.rows_per_part = ROWS_PER_PART};
	struct making m = {
		t, table, path, most, how, &rows, .lock = PTHREAD_MUTEX_INITIALIZER, .failed_part = UINT32_MAX};
	void *parts;
	rows.parts = (table->rows + ROWS_PER_PART - 1) / ROWS_PER_PART;
	GP_TRY(gp_alloc_array(&parts, rows.parts, sizeof *rows.part, err));
	rows.part = parts;
	run_threads(&m);
	pthread_mutex_destroy(&m.lock);
	if (m.failed_part != UINT32_MAX) {
		gp_text_rows_deinit(&rows);
		*err = m.err;
		return err->code;
	}
	sum_up(&rows);
	*out = rows;
	return GP_OK;
}

/* Rows from number * ROWS_PER_PART on; `counts` and `firsts` of these, and their tokens from *token on, which moves. */
static enum gp_status restore_part(struct gp_text_part *p, const uint8_t *counts, const uint8_t *firsts, uint32_t rows,
				   const uint8_t **token, struct gp_err *err)
{
	void *memory;
	for (uint32_t i = 0; i < rows; i++) {
		const int count = (int)gp_get_le(counts + (size_t)i * 4, 4);
		p->begin[i] = p->tokens;
		p->first_segment[i] = (int)gp_get_le(firsts + (size_t)i * 4, 4);
		p->tokens += (size_t)count;
		p->longest = count > p->longest ? count : p->longest;
	}
	p->begin[rows] = p->tokens;
	GP_TRY(gp_alloc_array(&memory, p->tokens, sizeof *p->token, err));
	p->token = memory;
	for (size_t i = 0; i < p->tokens; i++, *token += 4)
		p->token[i] = (int32_t)gp_get_le(*token, 4);
	return GP_OK;
}

enum gp_status gp_text_rows_restore(const uint8_t *bytes, uint32_t count, uint32_t cut, struct gp_text_rows *out,
				    struct gp_err *err)
{
	struct gp_text_rows rows = {.rows_per_part = ROWS_PER_PART,
				    .parts = (count + ROWS_PER_PART - 1) / ROWS_PER_PART};
	const uint8_t *const firsts = bytes + (size_t)count * 4, *token = firsts + (size_t)count * 4;
	void *parts;
	GP_TRY(gp_alloc_array(&parts, rows.parts, sizeof *rows.part, err));
	rows.part = parts;
	for (uint32_t i = 0; i < rows.parts; i++) {
		const uint32_t first = i * ROWS_PER_PART, left = count - first;
		if (restore_part(&rows.part[i], bytes + (size_t)first * 4, firsts + (size_t)first * 4,
				 left < ROWS_PER_PART ? left : ROWS_PER_PART, &token, err) != GP_OK) {
			gp_text_rows_deinit(&rows);
			return err->code;
		}
	}
	sum_up(&rows);
	rows.cut = cut;
	*out = rows;
	return GP_OK;
}

void gp_text_rows_deinit(struct gp_text_rows *r)
{
	for (uint32_t i = 0; r->part && i < r->parts; i++)
		gp_free(r->part[i].token);
	gp_free(r->part);
	*r = (struct gp_text_rows){0};
}

const int32_t *gp_text_rows_at(const struct gp_text_rows *r, uint32_t row, int *count)
{
	const struct gp_text_part *p = &r->part[row / ROWS_PER_PART];
	const size_t *begin = &p->begin[row % ROWS_PER_PART];
	*count = (int)(begin[1] - begin[0]);
	return p->token + begin[0];
}

int gp_text_rows_first_segment(const struct gp_text_rows *r, uint32_t row)
{
	return r->part[row / ROWS_PER_PART].first_segment[row % ROWS_PER_PART];
}
