/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress line. See progress.h. Test: tests/unit/test_progress.c
 */
#include "client/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const uint64_t terminal_every_ns = 200 * 1000 * 1000;
static const char clear_line[] = "\r\033[K";

static bool can_rewrite(FILE *to)
{
	const char *term = getenv("TERM");
	return isatty(fileno(to)) && term && strcmp(term, "dumb") != 0;
}

void gp_progress_init(struct gp_progress *p, FILE *to, double plain_every_s)
{
	*p = (struct gp_progress){.to = to};
	p->in_place = to && can_rewrite(to);
	p->every_ns = p->in_place ? terminal_every_ns : (uint64_t)(plain_every_s * 1e9);
}

bool gp_progress_due(const struct gp_progress *p, uint64_t now_ns)
{
	return p->to && (!p->shown || now_ns - p->shown_ns >= p->every_ns);
}

/* A longer text would wrap, and the next one could not be written over it. */
static int visible_length(const struct gp_progress *p, const char *text)
{
	struct winsize size;
	int len = (int)strcspn(text, "\r\n");
	if (!p->in_place)
		return len;
	int columns = ioctl(fileno(p->to), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
	return len < columns - 1 ? len : columns - 1;
}

static void show(struct gp_progress *p, const char *text)
{
	int len = visible_length(p, text);
	if (p->in_place)
		fprintf(p->to, "%s%.*s", clear_line, len, text);
	else
		fprintf(p->to, "%.*s\n", len, text);
	fflush(p->to);
	p->shown = true;
	p->open = p->in_place;
}

void gp_progress_update(struct gp_progress *p, uint64_t now_ns, const char *text)
{
	if (!gp_progress_due(p, now_ns))
		return;
	show(p, text);
	p->shown_ns = now_ns;
}

void gp_progress_clear(struct gp_progress *p)
{
	if (!p->open)
		return;
	fputs(clear_line, p->to);
	fflush(p->to);
	p->open = false;
}

void gp_progress_finish(struct gp_progress *p, const char *text)
{
	if (!p->to)
		return;
	if (text)
		show(p, text);
	if (p->open)
		fputc('\n', p->to);
	fflush(p->to);
	p->open = false;
}
