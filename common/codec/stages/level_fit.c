/* SPDX-License-Identifier: Apache-2.0
 *
 * ALQ and AMQ. See level_fit.h. Probabilities of intervals come from erfc on
 * the side where they are small, so that the far tails, where most levels of a
 * large bucket lie, keep their precision. Test: tests/unit/test_level_fit.c
 */
#include "common/codec/stages/level_fit.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/exact_math.h"

enum {
	SWEEPS = 30,
	ROOT_STEPS = 100,
	DESCENT_STEPS = 50,
	MOST_LEVELS = 256,
	ALQ_STARTS = 3,
	AMQ_STARTS = 8,
	PLACE_NS = 10000, /* of finding one level's place among narrow parts */
	SLOPE_NS = 1000,  /* of one gap's share in a slope */
};
#define SETTLED      1e-10 /* a sweep that moves no level further is the last */
#define DESCENT_RATE 0.7
#define ROOT_TWO     1.41421356237309504880
#define ROOT_TWO_PI  2.50662827463100050242

/* --- a mixture of truncated normal distributions ---------------------------------------------------------------- */

static double normal_density(double z)
{
	return gp_exact_exp(-z * z / 2) / ROOT_TWO_PI;
}

/* Probability that a standard normal variable lies between a and b, a <= b. */
static double normal_mass(double a, double b)
{
	if (a > 0)
		return (gp_exact_erfc(a / ROOT_TWO) - gp_exact_erfc(b / ROOT_TWO)) / 2;
	if (b < 0)
		return (gp_exact_erfc(-b / ROOT_TWO) - gp_exact_erfc(-a / ROOT_TWO)) / 2;
	return (gp_exact_erf(b / ROOT_TWO) - gp_exact_erf(a / ROOT_TWO)) / 2;
}

/* A part with what is needed again and again. */
struct part {
	double mean, sigma;
	double scale; /* weight over the mass within [-1, 1] */
};

struct mix {
	int count;
	struct part part[GP_LEVEL_PARTS];
};

static struct mix prepare(const struct gp_level_mix *m)
{
	struct mix out = {.count = m->count};
	for (int k = 0; k < m->count; k++) {
		const struct gp_level_part *p = &m->part[k];
		const double inside = normal_mass((-1 - p->mean) / p->sigma, (1 - p->mean) / p->sigma);
		out.part[k] = (struct part){p->mean, p->sigma, p->weight / inside};
	}
	return out;
}

static double clamp(double x)
{
	return fmin(fmax(x, -1), 1);
}

static double density(const struct part *p, double x)
{
	return x < -1 || x > 1 ? 0 : p->scale / p->sigma * normal_density((x - p->mean) / p->sigma);
}

/* int_a^b f(x) dx of one part and of the mixture. */
static double mass(const struct part *p, double a, double b)
{
	return p->scale * normal_mass((clamp(a) - p->mean) / p->sigma, (clamp(b) - p->mean) / p->sigma);
}

static double mix_mass(const struct mix *m, double a, double b)
{
	double sum = 0;
	for (int k = 0; k < m->count; k++)
		sum += mass(&m->part[k], a, b);
	return sum;
}

static double mix_density(const struct mix *m, double x)
{
	double sum = 0;
	for (int k = 0; k < m->count; k++)
		sum += density(&m->part[k], x);
	return sum;
}

/* int_a^b (x - a) f(x) dx, and int_a^b (x - a)(b - x) f(x) dx. */
static double mix_first_moment(const struct mix *m, double a, double b)
{
	double sum = 0;
	for (int k = 0; k < m->count; k++) {
		const struct part *p = &m->part[k];
		sum += (p->mean - a) * mass(p, a, b) + p->sigma * p->sigma * (density(p, a) - density(p, b));
	}
	return sum;
}

/* With c between a and b, h half of b - a and y = x - c: (x - a)(b - x) = h^2 - y^2. */
static double gap_variance(const struct mix *m, double a, double b)
{
	const double c = (a + b) / 2, h = (b - a) / 2;
	double sum = 0;
	for (int k = 0; k < m->count; k++) {
		const struct part *p = &m->part[k];
		const double d = p->mean - c, variance = p->sigma * p->sigma;
		const double fa = density(p, a), fb = density(p, b);
		const double edges = variance * ((d - h) * fa - (d + h) * fb);
		sum += (h * h - d * d - variance) * mass(p, a, b) - edges;
	}
	return fmax(sum, 0);
}

static double variance_of(const struct mix *m, const double *level, int count)
{
	double sum = 0;
	for (int i = 0; i + 1 < count; i++)
		sum += gap_variance(m, level[i], level[i + 1]);
	return sum;
}

double gp_level_variance(const struct gp_level_mix *m, const double *level, int count)
{
	const struct mix mix = prepare(m);
	return variance_of(&mix, level, count);
}

/* x in [a, b] with int_x^b f = rest: Newton's steps within a bracket that is halved where they leave it. */
static double find(const struct mix *m, double a, double b, double rest, double x)
{
	double low = a, high = b;
	for (int i = 0; i < ROOT_STEPS && high - low > 1e-15; i++) {
		if (!(x > low && x < high))
			x = (low + high) / 2;
		const double over = mix_mass(m, x, b) - rest, step = over / mix_density(m, x);
		if (over > 0)
			low = x;
		else
			high = x;
		x += step;
		if (fabs(step) <= 1e-13 * (b - a) && x > a && x < b)
			return x;
	}
	return (low + high) / 2;
}

/* --- ALQ -------------------------------------------------------------------------------------------------------- */

/* Between neighbours a and b the variance is least where int_x^b f = int_a^b (x - a) f / (b - a). Where there is nothing
 * to tell, a level goes to the middle. */
static double best_between(const struct mix *m, double a, double b, double x)
{
	if (!(b > a))
		return a;
	const double all = mix_mass(m, a, b), rest = mix_first_moment(m, a, b) / (b - a);
	return rest > 0 && rest < all ? find(m, a, b, rest, x) : (a + b) / 2;
}

static double descend(const struct mix *m, double *level, int count, const struct gp_stop *stop)
{
	for (int sweep = 0; sweep < SWEEPS && !gp_stop_is_set(stop); sweep++) {
		double moved = 0;
		for (int i = 1; i + 1 < count; i++) {
			const double x = best_between(m, level[i - 1], level[i + 1], level[i]);
			moved = fmax(moved, fabs(x - level[i]));
			level[i] = x;
		}
		if (moved < SETTLED)
			break;
	}
	return variance_of(m, level, count);
}

static void start_at_quantiles(const struct mix *m, double *level, int count)
{
	const double all = mix_mass(m, -1, 1);
	for (int i = 1; i + 1 < count; i++)
		level[i] = find(m, -1, 1, all * (count - 1 - i) / (count - 1), level[i - 1]);
}

static void start_evenly(double *level, int count)
{
	for (int i = 1; i + 1 < count; i++)
		level[i] = (2.0 * i - (count - 1)) / (count - 1);
}

static void start_at_powers(double *level, int count)
{
	for (int j = 1; j < count / 2; j++) {
		level[j] = -ldexp(1, -j);
		level[count - 1 - j] = ldexp(1, -j);
	}
}

void gp_level_fit_alq(const struct gp_level_mix *m, int bits, const struct gp_stop *stop, double *level)
{
	const struct mix mix = prepare(m);
	const int count = 1 << bits;
	double start[ALQ_STARTS][MOST_LEVELS], variance[ALQ_STARTS];
	int best = 0;
	for (int k = 0; k < ALQ_STARTS; k++) {
		start[k][0] = -1;
		start[k][count - 1] = 1;
	}
	start_at_quantiles(&mix, start[0], count);
	start_evenly(start[1], count);
	start_at_powers(start[2], count);
	for (int k = 0; k < ALQ_STARTS; k++) {
		variance[k] = descend(&mix, start[k], count, stop);
		if (variance[k] < variance[best])
			best = k;
	}
	memcpy(level, start[best], (size_t)count * sizeof *level);
}

/* --- AMQ -------------------------------------------------------------------------------------------------------- */

/* The part between p^(j + 1) and p^j of the derivative of the positive half's variance. */
static double slope_of_gap(const struct mix *m, double p, int j, double power, double below)
{
	const double next = power * p; /* p^j is power, p^(j - 1) is below */
	const double edges = j * below + (j + 1) * power;
	double sum = 0;
	for (int k = 0; k < m->count; k++) {
		const struct part *d = &m->part[k];
		sum += (d->mean * edges - (2 * j + 1) * power * power) * mass(d, next, power) +
		       d->sigma * d->sigma * edges * (density(d, next) - density(d, power));
	}
	return sum;
}

/* d/dp of int_0^(p^s) (p^2s - x^2) f + sum_(j < s) int_(p^(j + 1))^(p^j) (x - p^(j + 1))(p^j - x) f. */
static double slope(const struct mix *m, double p, int s)
{
	double sum = 0, power = 1, below = 0;
	for (int j = 0; j < s; j++) {
		sum += slope_of_gap(m, p, j, power, below);
		below = power;
		power *= p;
	}
	return sum + 2 * s * below * power * mix_mass(m, 0, power);
}

static double descend_from(const struct mix *m, double p, int s)
{
	for (int i = 0; i < DESCENT_STEPS; i++)
		p -= DESCENT_RATE * slope(m, p, s);
	return p;
}

/* Expected variance over the positive levels alone, which is what the original experiments compare. */
static double half_variance(const struct mix *m, double p, int s)
{
	double sum = 0, power = 1;
	for (int j = 0; j < s; j++, power *= p)
		sum += gap_variance(m, power * p, power);
	return sum;
}

double gp_level_fit_amq(const struct gp_level_mix *m, int bits, double previous, const struct gp_stop *stop)
{
	const double start[AMQ_STARTS] = {0.1, 0.2, 0.3, 0.4, previous > 0 ? previous : 0.6, 0.5, 0.8, 0.9};
	const struct mix mix = prepare(m);
	const int s = (1 << (bits - 1)) - 1;
	double best = 0.5, least = INFINITY;
	for (int i = 0; i < AMQ_STARTS && !gp_stop_is_set(stop); i++) {
		const double p = descend_from(&mix, start[i], s);
		const double variance = p > 0 && p < 1 ? half_variance(&mix, p, s) : INFINITY;
		if (variance < least) {
			least = variance;
			best = p;
		}
	}
	return best;
}

/* --- work ------------------------------------------------------------------------------------------------------- */

uint64_t gp_level_fit_alq_work(int bits)
{
	return (UINT64_C(1) << bits) * ALQ_STARTS * SWEEPS * PLACE_NS;
}

uint64_t gp_level_fit_amq_work(int bits)
{
	return (UINT64_C(1) << (bits - 1)) * AMQ_STARTS * DESCENT_STEPS * SLOPE_NS;
}
