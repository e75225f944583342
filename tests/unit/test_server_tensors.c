/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server and bodies of several tensors (PROTOCOL.md section 5.3): frames of
 * a chunk that come twice, too early or not at all, chunks of the next step ahead of
 * COMMIT, and what a checkpoint has of those.
 */
#include "tests/unit/server_rig.h"

#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "server/state_dir.h"

enum { LENGTH = 4, FEATURES = 3, CLASSES = 2, SAMPLES = 2 };

#define OK(expr)                                                                                                       \
	do {                                                                                                           \
		if ((expr) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

/* Inputs: words (f32) and a mask (i32). Outputs: the words' mean and what a layer makes of it. */
static struct gp_graph *words_and_mask(void)
{
	struct gp_err err;
	struct gp_graph *g = gp_graph_new_empty("body", &err);
	const int words = gp_graph_add_input(g, "words", &(struct gp_type){GP_F32, {2, {LENGTH, FEATURES}}}, &err);
	const int mask = gp_graph_add_input(g, "mask", &(struct gp_type){GP_I32, {1, {LENGTH}}}, &err);
	OK(gp_graph_begin_block(g, "body", &err));
	const int layer = gp_graph_linear(g, "layer", words, FEATURES, true, &err);
	const int mean = gp_graph_masked_mean(g, "mean", layer, mask, &err);
	const int classes = gp_graph_linear(g, "classes", mean, CLASSES, true, &err);
	OK(gp_graph_set_outputs(g, 2, (const int[]){mean, classes}, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

/* A batch norm, whose running statistics every forward changes. */
static struct gp_graph *one_input(void)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {4, 4, 2}};
	struct gp_err err;
	struct gp_graph *g = gp_graph_new("body", &sample, &err);
	OK(gp_graph_begin_block(g, "body", &err));
	const int x = gp_graph_conv(g, "conv", 0, 3, 1, 1, 0, 1, true, &err);
	assert_true(gp_graph_batch_norm(g, "norm", x, 1e-5f, 0.1f, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static char state_dir[64];
static const uint8_t run_id[GP_RUN_ID_BYTES] = {0x12, 0x34};

static int setup_body(void **state, struct gp_graph *body, int64_t session_memory_bytes)
{
	struct gp_server_settings set = server_thread_settings();
	struct fixture *f = gp_calloc(1, sizeof *f);
	strcpy(state_dir, "/tmp/gp_tensors_XXXXXX");
	if (!mkdtemp(state_dir))
		return -1;
	set.state_dir = state_dir;
	set.state_max_bytes = 1 << 30;
	set.session_memory_bytes = session_memory_bytes;
	f->server = server_thread_start_with(&set);
	f->port = f->server->port;
	f->body = body;
	*state = f;
	return 0;
}

static int setup_words(void **state)
{
	return setup_body(state, words_and_mask(), 64 << 20);
}

static int setup_image(void **state)
{
	return setup_body(state, one_input(), 64 << 20);
}

/* Nodes that compute next to nothing, on a server whose sessions may take 1 MiB. */
static int setup_nodes(void **state)
{
	struct gp_err err;
	char name[16];
	const struct gp_shape one = {.ndim = 1, .dim = {1}};
	struct gp_graph *g = gp_graph_new("body", &one, &err);
	OK(gp_graph_begin_block(g, "body", &err));
	for (int i = 0, x = 0; i < 3000; i++) {
		snprintf(name, sizeof name, "n%d", i);
		x = gp_graph_unary(g, GP_OP_RELU, name, x, &err);
	}
	OK(gp_graph_finish(g, &err));
	return setup_body(state, g, 1 << 20);
}

static int teardown_all(void **state)
{
	char command[128];
	teardown(state);
	snprintf(command, sizeof command, "rm -rf '%s'", state_dir);
	return system(command);
}

/* --- frames ------------------------------------------------------------------------------------------------------ */

static uint32_t bytes_of(const struct gp_graph *g, enum gp_frame_type type, uint16_t tensor)
{
	const bool input = type == GP_FRAME_ACT_UP;
	const struct gp_type *t = input ? &g->value[tensor].type : gp_graph_output_type(g, tensor);
	return (uint32_t)(SAMPLES * gp_shape_elements(&t->shape) * sizeof(float));
}

/* Filled with 1.0, or with ones where the tensor is of integers. */
static void put_tensor(struct raw_peer *c, const struct gp_graph *g, struct gp_frame_head h)
{
	uint8_t bytes[GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + 1024];
	uint8_t *payload = bytes + GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES;
	const uint32_t len = bytes_of(g, h.type, h.tensor);
	const float one = 1.0f;
	const int32_t whole = 1;
	const bool integers = h.type == GP_FRAME_ACT_UP && g->value[h.tensor].type.dtype == GP_I32;
	assert_true(len <= 1024);
	for (uint32_t i = 0; i < len; i += (uint32_t)sizeof one)
		memcpy(payload + i, integers ? (const void *)&whole : &one, sizeof one);
	const struct gp_record_head r = {.kind = GP_RECORD_SEGMENT,
					 .klass = (uint8_t)gp_frame_class(h.type),
					 .flags = GP_SEGMENT_FIRST | GP_SEGMENT_LAST,
					 .len = GP_FRAME_HEADER_BYTES + len};
	h.codec = c->codec;
	h.session = c->session;
	h.payload_len = len;
	h.checksum = gp_frame_checksum(payload, len);
	gp_record_head_write(&r, bytes);
	gp_frame_head_write(&h, bytes + GP_RECORD_HEADER_BYTES);
	put(c, bytes, GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + len);
}

static void put_act(struct raw_peer *c, const struct fixture *f, uint64_t step, uint32_t chunk, uint16_t tensor)
{
	put_tensor(c, f->body,
		   (struct gp_frame_head){.type = GP_FRAME_ACT_UP, .step = step, .chunk = chunk, .tensor = tensor});
}

static void put_eval(struct raw_peer *c, const struct fixture *f, uint32_t chunk, uint16_t tensor)
{
	put_tensor(c, f->body,
		   (struct gp_frame_head){
			   .type = GP_FRAME_ACT_UP, .flags = GP_FRAME_FLAG_EVAL, .chunk = chunk, .tensor = tensor});
}

static void put_grad(struct raw_peer *c, const struct fixture *f, uint64_t step, uint32_t chunk, uint16_t tensor)
{
	put_tensor(c, f->body,
		   (struct gp_frame_head){.type = GP_FRAME_GRAD_UP, .step = step, .chunk = chunk, .tensor = tensor});
}

static void put_acts(struct raw_peer *c, const struct fixture *f, uint64_t step, uint32_t chunk)
{
	for (uint16_t i = 0; i < f->body->inputs; i++)
		put_act(c, f, step, chunk, i);
}

static void put_grads(struct raw_peer *c, const struct fixture *f, uint64_t step, uint32_t chunk)
{
	for (uint16_t i = 0; i < f->body->outputs; i++)
		put_grad(c, f, step, chunk, i);
}

static void frozen(Gpsplit__Open *o)
{
	o->frozen_inputs = 1;
}

static void frozen_with_memory(Gpsplit__Open *o)
{
	o->frozen_inputs = 1;
	o->codec_act_up = (char *)"delta:samples=8+uniform:bits=8";
}

/* --- tensors of one chunk ---------------------------------------------------------------------------------------- */

static void a_chunk_begins_when_all_of_its_tensors_are_there(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	until_ready(&c, f);
	put_act(&c, f, 0, 0, 1); /* the mask of both chunks first, then the words */
	put_act(&c, f, 0, 1, 1);
	put_act(&c, f, 0, 0, 0);
	get_answers(&c, 2, 0);
	put_act(&c, f, 0, 1, 0);
	get_answers(&c, 2, 0);
	put_grad(&c, f, 0, 0, 1);
	put_grad(&c, f, 0, 1, 1);
	put_grad(&c, f, 0, 0, 0);
	get_answers(&c, 1, 0); /* of the words alone */
	put_grad(&c, f, 0, 1, 0);
	get_answers(&c, 1, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	client_close(&c);
}

static void no_tensor(struct raw_peer *c, const struct fixture *f)
{
	(void)f;
	struct gp_frame_head h = {.type = GP_FRAME_ACT_UP, .codec = 1, .session = c->session, .tensor = 64};
	uint8_t bytes[GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES] = {0};
	const struct gp_record_head r = {.kind = GP_RECORD_SEGMENT,
					 .klass = GP_CLASS_BULK,
					 .flags = GP_SEGMENT_FIRST | GP_SEGMENT_LAST,
					 .len = GP_FRAME_HEADER_BYTES};
	h.checksum = gp_frame_checksum(bytes, 0);
	gp_record_head_write(&r, bytes);
	gp_frame_head_write(&h, bytes + GP_RECORD_HEADER_BYTES);
	put(c, bytes, sizeof bytes);
}

static void twice(struct raw_peer *c, const struct fixture *f)
{
	put_act(c, f, 0, 0, 1);
	put_act(c, f, 0, 0, 1);
}

static void twice_in_an_evaluation(struct raw_peer *c, const struct fixture *f)
{
	put_eval(c, f, 0, 1);
	put_eval(c, f, 0, 1);
}

static void over_the_window(struct raw_peer *c, const struct fixture *f)
{
	put_eval(c, f, 0, 1);
	put_eval(c, f, 2, 0); /* of the same slot */
}

static void training_in_an_evaluation(struct raw_peer *c, const struct fixture *f)
{
	put_eval(c, f, 0, 1);
	put_act(c, f, 0, 0, 0);
}

static void evaluation_in_a_step(struct raw_peer *c, const struct fixture *f)
{
	put_act(c, f, 0, 0, 0);
	put_eval(c, f, 0, 1);
}

static void gradient_of_a_chunk_in_part(struct raw_peer *c, const struct fixture *f)
{
	put_act(c, f, 0, 0, 0);
	put_grad(c, f, 0, 0, 0);
}

static void gradient_twice(struct raw_peer *c, const struct fixture *f)
{
	put_acts(c, f, 0, 0);
	get_answers(c, 2, 0);
	put_grad(c, f, 0, 0, 1);
	put_grad(c, f, 0, 0, 1);
}

static void next_step_with_gradients(struct raw_peer *c, const struct fixture *f)
{
	put_acts(c, f, 0, 0);
	put_acts(c, f, 0, 1);
	put_acts(c, f, 1, 0);
}

static void commit_of_a_chunk_in_part(struct raw_peer *c, const struct fixture *f)
{
	put_act(c, f, 0, 0, 0);
	put_commit(c, 0, 0.1f);
}

static void frames_out_of_place_end_the_session(void **state)
{
	static const struct {
		void (*send)(struct raw_peer *c, const struct fixture *f);
		const char *text;
	} wrong[] = {
		{no_tensor, "tensor 64, which does not cross that way"},
		{twice, "act_up of step 0 chunk 0 is not expected"},
		{twice_in_an_evaluation, "comes twice"},
		{over_the_window, "more than 2 chunks in flight"},
		{training_in_an_evaluation, "is not expected"},
		{evaluation_in_a_step, "evaluation inside a training step"},
		{gradient_of_a_chunk_in_part, "grad_up of chunk 0 is not expected"},
		{gradient_twice, "grad_up of chunk 0 is not expected"},
		{next_step_with_gradients, "step 1, but 0 is under way"},
		{commit_of_a_chunk_in_part, "commit of step 0 after 0 of 2 chunks"},
	};
	const struct fixture *f = *state;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct raw_peer c;
		until_ready(&c, f);
		wrong[i].send(&c, f);
		expect_error(&c, wrong[i].text);
		client_close(&c);
	}
	still_serves(f);
}

static void a_graph_counts_for_what_a_session_takes(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	until_welcome(&c, f);
	put_open(&c, f->body, NULL);
	expect_error(&c, "this session needs");
	client_close(&c);
}

/* --- the next step's chunks ahead -------------------------------------------------------------------------------- */

/* Both chunks of a step up to their CHUNK_DONE; `ahead` of the next step's chunks are there before that. */
static void run_chunks(struct raw_peer *c, const struct fixture *f, uint64_t step, uint32_t ahead)
{
	for (uint32_t chunk = 0; chunk < 2; chunk++)
		put_acts(c, f, step, chunk);
	get_answers(c, 2 * f->body->outputs, 0);
	put_grads(c, f, step, 0);
	expect_control(c, GPSPLIT__CONTROL__BODY_CHUNK_DONE);
	if (ahead > 0)
		put_acts(c, f, step + 1, 0);
	put_grads(c, f, step, 1);
	expect_control(c, GPSPLIT__CONTROL__BODY_CHUNK_DONE);
	if (ahead > 1)
		put_acts(c, f, step + 1, 1);
}

static void chunks_ahead_are_computed_after_commit(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	until_ready_with(&c, f, frozen);
	run_chunks(&c, f, 0, 2);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	get_answers(&c, 2 * f->body->outputs, 0);
	put_grads(&c, f, 1, 0);
	put_grads(&c, f, 1, 1);
	expect_control(&c, GPSPLIT__CONTROL__BODY_CHUNK_DONE);
	expect_control(&c, GPSPLIT__CONTROL__BODY_CHUNK_DONE);
	put_commit(&c, 1, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	client_close(&c);
}

static void chunks_too_far_ahead_are_refused(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	until_ready_with(&c, f, frozen);
	run_chunks(&c, f, 0, 2);
	put_act(&c, f, 2, 0, 0);
	expect_error(&c, "step 2, but 0 is under way");
	client_close(&c);
	until_ready_with(&c, f, frozen);
	run_chunks(&c, f, 0, 1);
	put_grads(&c, f, 1, 0);
	expect_error(&c, "grad_up of step 1, but 0 is under way");
	client_close(&c);
	until_ready_with(&c, f, frozen);
	run_chunks(&c, f, 0, 1);
	put_act(&c, f, 1, 0, 0);
	expect_error(&c, "act_up of step 1 chunk 0 is not expected");
	client_close(&c);
}

/* What it remembers could be taken back by one step alone. */
static void chunks_ahead_through_a_codec_that_remembers_are_refused(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	until_ready_with(&c, f, frozen_with_memory);
	put_act(&c, f, 1, 0, 1);
	expect_error(&c, "act_up of step 1, but 0 is under way");
	client_close(&c);
}

/* --- what a checkpoint has of them ------------------------------------------------------------------------------- */

static void open_run(struct raw_peer *c, const struct fixture *f, uint64_t *checkpoint, size_t count,
		     void (*spoil)(Gpsplit__Open *))
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	client_connect(c, f);
	put_preface(c);
	hello.version = GP_PROTO_VERSION;
	hello.run_id = (ProtobufCBinaryData){sizeof run_id, (uint8_t *)run_id};
	hello.checkpoint = checkpoint;
	hello.n_checkpoint = count;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
	Gpsplit__Control *answer = get_control(c);
	assert_true(answer && answer->body_case == GPSPLIT__CONTROL__BODY_WELCOME);
	c->session = answer->welcome->session;
	gpsplit__control__free_unpacked(answer, NULL);
	put_open(c, f->body, spoil);
	expect_control(c, GPSPLIT__CONTROL__BODY_READY);
}

static void put_commit_with_checkpoint(struct raw_peer *c)
{
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	commit.lr = 0.1f;
	commit.checkpoint = true;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &commit;
	put_control(c, &m);
}

static void frozen_from_step_1(Gpsplit__Open *o)
{
	frozen(o);
	o->restore_step = 1;
}

/* One hash of all parameters, running statistics included. */
static uint64_t fetch(struct raw_peer *c, int params)
{
	Gpsplit__FetchParams body = GPSPLIT__FETCH_PARAMS__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	uint64_t sum = 0;
	m.body_case = GPSPLIT__CONTROL__BODY_FETCH_PARAMS;
	m.fetch_params = &body;
	put_control(c, &m);
	while (params > 0) {
		uint8_t bytes[GP_RECORD_HEADER_BYTES];
		struct gp_record_head h;
		struct gp_err err;
		assert_true(get(c, bytes, sizeof bytes));
		OK(gp_record_head_read(bytes, &h, &err));
		assert_true(h.len <= c->body_cap && get(c, c->body, h.len));
		if (h.kind != GP_RECORD_SEGMENT)
			continue;
		assert_int_equal(h.flags, GP_SEGMENT_FIRST | GP_SEGMENT_LAST);
		sum = sum * 31 + gp_frame_checksum(c->body + GP_FRAME_HEADER_BYTES, h.len - GP_FRAME_HEADER_BYTES);
		params--;
	}
	return sum;
}

static uint64_t checkpoint_with(const struct fixture *f, uint32_t ahead)
{
	struct raw_peer c;
	open_run(&c, f, (uint64_t[]){0}, 1, frozen);
	run_chunks(&c, f, 0, ahead);
	put_commit_with_checkpoint(&c);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	client_close(&c);
	open_run(&c, f, (uint64_t[]){1, 0}, 2, frozen_from_step_1);
	const uint64_t sum = fetch(&c, f->body->params);
	client_close(&c);
	return sum;
}

static void a_checkpoint_has_nothing_of_chunks_that_came_ahead_of_its_commit(void **state)
{
	const struct fixture *f = *state;
	const uint64_t want = checkpoint_with(f, 0);
	for (int i = 0; i < 20; i++)
		assert_true(checkpoint_with(f, 2) == want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_chunk_begins_when_all_of_its_tensors_are_there, setup_words,
						teardown_all),
		cmocka_unit_test_setup_teardown(frames_out_of_place_end_the_session, setup_words, teardown_all),
		cmocka_unit_test_setup_teardown(a_graph_counts_for_what_a_session_takes, setup_nodes, teardown_all),
		cmocka_unit_test_setup_teardown(chunks_ahead_are_computed_after_commit, setup_words, teardown_all),
		cmocka_unit_test_setup_teardown(chunks_too_far_ahead_are_refused, setup_words, teardown_all),
		cmocka_unit_test_setup_teardown(chunks_ahead_through_a_codec_that_remembers_are_refused, setup_words,
						teardown_all),
		cmocka_unit_test_setup_teardown(a_checkpoint_has_nothing_of_chunks_that_came_ahead_of_its_commit,
						setup_image, teardown_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
