/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of batch norm with residual and activation, both passes, beside a plain
 * loop in double over shapes that are drawn, in fp32 and bf16. See
 * kernels/cuda/ops/k_batch_norm.h.
 */
#include "kernels/cuda/ops/k_batch_norm.h"
#include "tests/unit/test_cuda.h"

struct bn_case {
	enum gp_rt_type type;
	enum gpk_act act;
	bool residual;
	int64_t rows, channels;
	struct gpk_bn n;
	struct tensor x, add, y, dy, dadd, dx, gamma, beta, mean, var, dgamma, dbeta, saved;
};

static struct bn_case bn_new(int i)
{
	static const int64_t rows[] = {7, 16, 64, 392, 1000, 5000}, channels[] = {1, 3, 8, 24, 129, 264};
	struct bn_case c = {.type = i % 3 ? GP_RT_F32 : GP_RT_BF16, .act = (enum gpk_act)(i / 2 % 3)};
	c.residual = i % 2;
	c.rows = rows[draw_of(0, 5)];
	c.channels = channels[draw_of(0, 5)];
	const int64_t n = c.rows * c.channels, ch = c.channels;
	c.x = tensor_new(c.type, n);
	for (int64_t j = 0; j < n; j++)
		c.x.host[j] = 3 * c.x.host[j] + 2 + (float)(j % ch % 5);
	tensor_up(&c.x);
	struct tensor *const values[] = {&c.add, &c.y, &c.dy, &c.dadd, &c.dx};
	for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
		*values[k] = tensor_new(c.type, n);
	struct tensor *const lines[] = {&c.gamma, &c.beta, &c.mean, &c.var, &c.dgamma, &c.dbeta};
	for (size_t k = 0; k < sizeof lines / sizeof lines[0]; k++)
		*lines[k] = tensor_new(GP_RT_F32, ch);
	for (int64_t j = 0; j < ch; j++)
		c.var.host[j] += 2;
	tensor_up(&c.var);
	c.saved = tensor_new(GP_RT_F32, GPK_BN_SAVED * ch);
	c.n = (struct gpk_bn){.type = c.type, .rows = c.rows, .channels = ch, .eps = 1e-5f, .momentum = 0.1f};
	c.n.act = c.act;
	c.n.gamma = c.gamma.device;
	c.n.beta = c.beta.device;
	c.n.running_mean = c.mean.device;
	c.n.running_var = c.var.device;
	c.n.saved = c.saved.device;
	c.n.room = device_room(gpk_bn_room(c.rows, ch));
	return c;
}

static void bn_free(struct bn_case *c)
{
	struct tensor *const all[] = {&c->x,    &c->add,  &c->y,   &c->dy,     &c->dadd,  &c->dx,   &c->gamma,
				      &c->beta, &c->mean, &c->var, &c->dgamma, &c->dbeta, &c->saved};
	for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
		tensor_free(all[k]);
	gp_rt_free(0, c->n.room);
}

static double activated(enum gpk_act act, double v)
{
	if (act == GPK_ACT_NONE)
		return v;
	v = v < 0 ? 0 : v;
	return act == GPK_ACT_RELU6 && v > 6 ? 6 : v;
}

static void bn_output(const struct bn_case *c, const double *mean, const double *var, double *y)
{
	for (int64_t j = 0; j < c->rows * c->channels; j++) {
		const int64_t ch = j % c->channels;
		const double v =
			(c->x.host[j] - mean[ch]) / sqrt(var[ch] + 1e-5) * c->gamma.host[ch] + c->beta.host[ch];
		y[j] = activated(c->act, v + (c->residual ? c->add.host[j] : 0));
	}
}

static void bn_statistics(const struct bn_case *c, double *mean, double *var)
{
	const int64_t n = c->rows * c->channels;
	for (int64_t j = 0; j < n; j++)
		mean[j % c->channels] += c->x.host[j] / (double)c->rows;
	for (int64_t j = 0; j < n; j++)
		var[j % c->channels] += pow(c->x.host[j] - mean[j % c->channels], 2) / (double)c->rows;
}

static void bn_check_running(const struct bn_case *c, const double *mean, const double *var)
{
	double *const want = calloc((size_t)c->channels, sizeof *want);
	const double rows = (double)c->rows, m = (double)0.1f;
	for (int64_t ch = 0; ch < c->channels; ch++)
		want[ch] = (1 - m) * c->mean.host[ch] + m * mean[ch];
	check_close(&c->mean, want, "running mean");
	for (int64_t ch = 0; ch < c->channels; ch++)
		want[ch] = (1 - m) * c->var.host[ch] + m * var[ch] * rows / (rows - 1);
	check_close(&c->var, want, "running variance");
	free(want);
}

static void bn_check_eval(struct bn_case *c, double *want)
{
	double *const mean = calloc((size_t)c->channels, sizeof *mean), *const var = calloc((size_t)c->channels,
											    sizeof *var);
	for (int64_t ch = 0; ch < c->channels; ch++) {
		mean[ch] = c->mean.host[ch];
		var[ch] = c->var.host[ch];
	}
	bn_output(c, mean, var, want);
	gpk_bn_forward_eval(stream, &c->n, c->x.device, c->residual ? c->add.device : NULL, c->y.device);
	check_close(&c->y, want, "batch norm in evaluation");
	free(mean);
	free(var);
}

static void batch_norm_forward_is_right_with_residual_and_activation(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct bn_case c = bn_new(i);
		double *const want = calloc((size_t)c.x.n, sizeof *want),
			      *const mean = calloc((size_t)c.channels, sizeof *mean),
			      *const var = calloc((size_t)c.channels, sizeof *var);
		bn_check_eval(&c, want);
		bn_statistics(&c, mean, var);
		bn_output(&c, mean, var, want);
		gpk_bn_forward(stream, &c.n, c.x.device, c.residual ? c.add.device : NULL, c.y.device);
		check_close(&c.y, want, "batch norm");
		bn_check_running(&c, mean, var);
		free(want);
		free(mean);
		free(var);
		bn_free(&c);
	}
}

/* From the device's own output, so that a value at an activation's edge falls on the same side. */
static void bn_gradients(const struct bn_case *c, const float *y, double *g, double *dx, double *dgamma, double *dbeta)
{
	const int64_t n = c->rows * c->channels, ch = c->channels;
	double *const mean = calloc((size_t)ch, sizeof *mean), *const var = calloc((size_t)ch, sizeof *var);
	bn_statistics(c, mean, var);
	for (int64_t j = 0; j < n; j++) {
		const bool stopped = c->act != GPK_ACT_NONE && (y[j] <= 0 || (c->act == GPK_ACT_RELU6 && y[j] >= 6));
		g[j] = stopped ? 0 : c->dy.host[j];
		dbeta[j % ch] += g[j];
		dgamma[j % ch] += g[j] * (c->x.host[j] - mean[j % ch]) / sqrt(var[j % ch] + 1e-5);
	}
	for (int64_t j = 0; j < n; j++) {
		const double invstd = 1 / sqrt(var[j % ch] + 1e-5), normal = (c->x.host[j] - mean[j % ch]) * invstd;
		dx[j] = c->gamma.host[j % ch] * invstd *
			(g[j] - dbeta[j % ch] / (double)c->rows - normal * dgamma[j % ch] / (double)c->rows);
	}
	for (int64_t k = 0; k < ch; k++) {
		dgamma[k] += c->dgamma.host[k];
		dbeta[k] += c->dbeta.host[k];
	}
	free(mean);
	free(var);
}

static void batch_norm_backward_is_right_with_residual_and_activation(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct bn_case c = bn_new(i);
		double *const g = calloc((size_t)c.x.n, sizeof *g), *const dx = calloc((size_t)c.x.n, sizeof *dx),
			      *const dgamma = calloc((size_t)c.channels, sizeof *dgamma),
			      *const dbeta = calloc((size_t)c.channels, sizeof *dbeta);
		gpk_bn_forward(stream, &c.n, c.x.device, c.residual ? c.add.device : NULL, c.y.device);
		float *const y = tensor_down(&c.y);
		bn_gradients(&c, y, g, dx, dgamma, dbeta);
		gpk_bn_backward(stream, &c.n, c.x.device, c.residual ? c.y.device : NULL, c.dy.device,
				c.residual && i % 4 == 1 ? c.dadd.device : NULL, c.dx.device, c.dgamma.device,
				c.dbeta.device);
		check_close(&c.dx, dx, "gradient of batch norm");
		check_close(&c.dgamma, dgamma, "gradient of gamma");
		check_close(&c.dbeta, dbeta, "gradient of beta");
		if (c.residual && i % 4 == 1)
			check_close(&c.dadd, g, "gradient of the residual");
		free(y);
		free(g);
		free(dx);
		free(dgamma);
		free(dbeta);
		bn_free(&c);
	}
}

/* Half a million values around 1000: sums of squares alone would lose the variance. */
static void variance_far_from_zero_keeps_its_digits(void **state)
{
	(void)state;
	struct bn_case c;
	do {
		c = bn_new(1);
		if (c.rows < 5000)
			bn_free(&c);
	} while (c.rows < 5000);
	for (int64_t j = 0; j < c.x.n; j++)
		c.x.host[j] = 1000 + draw();
	tensor_up(&c.x);
	double *const mean = calloc((size_t)c.channels, sizeof *mean), *const var =
									       calloc((size_t)c.channels, sizeof *var);
	bn_statistics(&c, mean, var);
	gpk_bn_forward(stream, &c.n, c.x.device, NULL, c.y.device);
	bn_check_running(&c, mean, var);
	free(mean);
	free(var);
	bn_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batch_norm_forward_is_right_with_residual_and_activation),
		cmocka_unit_test(batch_norm_backward_is_right_with_residual_and_activation),
		cmocka_unit_test(variance_far_from_zero_keeps_its_digits),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}
