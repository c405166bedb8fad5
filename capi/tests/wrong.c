/* Calls every entry point with nulls and invalid sizes, lengths, offsets, names and values. Each call must return
   a status with a message, and none may crash. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"

static int calls, failures;

static void refused(int line, ls_status got, ls_status want, const char *argument, int64_t index, const char *part) {
    const char *said = ls_last_error_argument();
    calls++;
    if (got == want && strstr(ls_last_error(), part) != NULL && ls_last_error_index() == index &&
        (argument == NULL ? said == NULL : said != NULL && strcmp(said, argument) == 0))
        return;
    failures++;
    printf("line %d: status %d for %d, argument %s for %s, index %lld for %lld: %s\n", line, (int)got, (int)want, said ? said : "none",
           argument ? argument : "none", (long long)ls_last_error_index(), (long long)index, ls_last_error());
}

/* Expects a status, an argument (null: none), an index (-1: none) and a part of the message. */
#define REFUSED(call, status, argument, index, part) refused(__LINE__, call, LS_STATUS_##status, argument, index, part)
/* The same for an entry point that returns no status. */
#define NOTHING(none, argument) refused(__LINE__, (none) ? LS_STATUS_POINTER : LS_STATUS_OK, LS_STATUS_POINTER, argument, -1, "null")
#define FINE(call) fine(__LINE__, call)

static void fine(int line, ls_status status) {
    if (status == LS_STATUS_OK) return;
    printf("line %d: status %d: %s\n", line, (int)status, ls_last_error());
    exit(1);
}

static const uint32_t SEQUENCES[] = {0, 3, 5, 7, 10}, GROUPS[] = {0, 2, 4};
static const float REWARDS[] = {1, 0, 0, 1};
static const float LOGP[] = {-0.5f, -1, -0.25f, -2, -0.375f, -0.875f, -1.125f, -0.5f, -0.625f, -0.125f};

static ls_rollouts batch(void) {
    ls_rollouts rollouts = {.size = sizeof rollouts};
    rollouts.cu_seqlens = (ls_span_u32){SEQUENCES, 5};
    rollouts.cu_groups = (ls_span_u32){GROUPS, 3};
    rollouts.rewards = (ls_span_f32){REWARDS, 4};
    rollouts.logp_old = (ls_span_f32){LOGP, 10};
    rollouts.logp = (ls_span_f32){LOGP, 10};
    return rollouts;
}

static void *other_thread(void *unused) {
    (void)unused;
    return (void *)(size_t)(strlen(ls_last_error()) == 0 && ls_last_error_argument() == NULL && ls_last_error_index() == -1);
}

/* An address that is misaligned for every type larger than a byte. */
#define CROOKED(type) ((type)(void *)((char *)crooked + 1))
static double crooked[64];

static void recipes(void) {
    ls_recipe *recipe = CROOKED(ls_recipe *);
    ls_need needs[4];
    ls_column column;
    REFUSED(ls_recipe_open(NULL, &recipe), POINTER, "source", -1, "null");
    if (recipe != NULL) failures++;
    REFUSED(ls_recipe_open("dapo", NULL), POINTER, "out", -1, "null");
    REFUSED(ls_recipe_open("dapo", CROOKED(ls_recipe **)), POINTER, "out", -1, "aligned");
    REFUSED(ls_recipe_open("dapo_ful", &recipe), RECIPE, NULL, -1, "similar names: dapo_full");
    REFUSED(ls_recipe_open("", &recipe), RECIPE, NULL, -1, "no recipe is called");
    REFUSED(ls_recipe_open("ab\xff", &recipe), ARGUMENT, "source", 2, "UTF-8");
    REFUSED(ls_recipe_open("[gate", &recipe), RECIPE, NULL, -1, "recipe");
    REFUSED(ls_recipe_open("gates = 1\n", &recipe), RECIPE, NULL, -1, "gates");
    REFUSED(ls_recipe_open("[gate]\nclip_ratio_low = -1.0\n", &recipe), ARGUMENT, "clip_ratio_low", -1, "expected 0 to 1");
    NOTHING(ls_recipe_name(NULL) == NULL, "recipe");
    NOTHING(ls_recipe_toml(NULL) == NULL, "recipe");
    NOTHING(ls_recipe_explain(NULL) == NULL, "recipe");
    NOTHING(ls_recipe_per_token(NULL) == 0, "recipe");
    NOTHING(ls_recipe_needs(NULL, needs, 4) == 0, "recipe");
    NOTHING(ls_recipe_duties(NULL, NULL, 0) == 0, "recipe");
    FINE(ls_recipe_open("remax", &recipe));
    NOTHING(ls_recipe_needs(recipe, NULL, 4) == 0, "out");
    NOTHING(ls_recipe_duties(recipe, NULL, 4) == 0, "out");
    ls_recipe_free(recipe);
    REFUSED(ls_column_at(0, NULL), POINTER, "out", -1, "null");
    REFUSED(ls_column_at(1000, &column), ABSENT, "number", -1, "is 1000");
    if (ls_recipe_name_at(100000) != NULL || ls_metric_name_at(1000) != NULL) failures++;
}

static void devices(void) {
    ls_device *device;
    REFUSED(ls_device_open(NULL, 0, &device), POINTER, "name", -1, "null");
    REFUSED(ls_device_open("cpu", 0, NULL), POINTER, "out", -1, "null");
    REFUSED(ls_device_open("tpu", 0, &device), DEVICE, NULL, -1, "tpu");
    REFUSED(ls_device_open("cpu:fast", 0, &device), DEVICE, NULL, -1, "one of the levels");
    REFUSED(ls_device_open("cuda:x", 0, &device), DEVICE, NULL, -1, "number");
    REFUSED(ls_device_open("cuda:4096", 0, &device), DEVICE, NULL, -1, "");
    REFUSED(ls_device_open("rocm:4096", 0, &device), DEVICE, NULL, -1, "");
    REFUSED(ls_device_open("cuda", 2, &device), ARGUMENT, "threads", -1, "expected 0");
    REFUSED(ls_device_open("cpu", 1000000, &device), ARGUMENT, "threads", -1, "at most 1024");
    NOTHING(ls_device_describe(NULL) == NULL, "device");
}

/* The structs that begin with their size, and every column's span in the largest of them. */
static void columns(const ls_device *device, const ls_recipe *recipe) {
    ls_credit *credit;
    ls_column column;
    ls_rollouts rollouts = batch();
    struct {
        ls_rollouts known;
        double more;
    } newer = {.known = batch()};
    static const uint32_t sizes[] = {0, 8, 15, 1u << 20, 0xffffffffu};
    for (size_t i = 0; i < 5; i++) {
        rollouts.size = sizes[i];
        REFUSED(ls_advantages(device, recipe, &rollouts, &credit), ARGUMENT, "rollouts", -1, "sizeof");
    }
    rollouts = batch();
    rollouts.reserved = 7;
    REFUSED(ls_advantages(device, recipe, &rollouts, &credit), ARGUMENT, "rollouts.reserved", -1, "is 7: expected 0");
    /* A newer caller's struct is accepted if its extra fields are 0. */
    newer.known.size = sizeof newer;
    FINE(ls_advantages(device, recipe, &newer.known, &credit));
    ls_credit_free(credit);
    newer.more = 1;
    REFUSED(ls_advantages(device, recipe, &newer.known, &credit), ARGUMENT, "rollouts", -1, "does not know");
    /* An older caller's struct lacks the last columns. */
    FINE(ls_column_at(10, &column));
    rollouts = batch();
    rollouts.size = column.offset;
    REFUSED(ls_advantages(device, recipe, &rollouts, &credit), COLUMNS, NULL, -1, "rewards (for advantage)");

    for (size_t number = 0; ls_column_at(number, &column) == LS_STATUS_OK; number++) {
        const struct {
            const void *data;
            size_t len;
            ls_status status;
            const char *part;
        } wrong[] = {{NULL, 3, LS_STATUS_POINTER, "is null and has 3 entries"},
                     {crooked, SIZE_MAX, LS_STATUS_ARGUMENT, "more than fit in memory"},
                     {CROOKED(const void *), 3, LS_STATUS_POINTER, "not aligned"}};
        for (size_t i = 0; i < (column.element == LS_ELEMENT_U8 ? 2 : 3); i++) {
            rollouts = batch();
            memcpy((char *)&rollouts + column.offset, &wrong[i], sizeof(ls_span_u8));
            refused(__LINE__, ls_advantages(device, recipe, &rollouts, &credit), wrong[i].status, column.name, -1, wrong[i].part);
        }
    }
}

static void values(const ls_device *device, const ls_recipe *recipe, const ls_credit *credit) {
    ls_rollouts rollouts = batch();
    ls_credit *none = NULL;
    ls_output *output = NULL;
    const uint32_t first[] = {1, 3, 5, 7, 10}, falls[] = {0, 3, 2, 7, 10}, last[] = {0, 2, 3};
    float bad[10];
    REFUSED(ls_advantages(NULL, recipe, &rollouts, &none), POINTER, "device", -1, "null");
    REFUSED(ls_advantages(device, NULL, &rollouts, &none), POINTER, "recipe", -1, "null");
    REFUSED(ls_advantages(device, recipe, NULL, &none), POINTER, "rollouts", -1, "null");
    REFUSED(ls_advantages(device, recipe, CROOKED(const ls_rollouts *), &none), POINTER, "rollouts", -1, "aligned");
    REFUSED(ls_advantages(device, recipe, &rollouts, NULL), POINTER, "out", -1, "null");
    rollouts.cu_seqlens.data = first;
    REFUSED(ls_advantages(device, recipe, &rollouts, &none), ARGUMENT, "cu_seqlens", 0, "start at 0");
    rollouts.cu_seqlens.data = falls;
    REFUSED(ls_advantages(device, recipe, &rollouts, &none), ARGUMENT, "cu_seqlens", 2, "the entry before");
    rollouts = batch();
    rollouts.cu_groups.data = last;
    REFUSED(ls_advantages(device, recipe, &rollouts, &none), ARGUMENT, "cu_groups", 2, "sequences");
    rollouts = batch();
    rollouts.cu_seqlens.len = 0;
    REFUSED(ls_advantages(device, recipe, &rollouts, &none), ARGUMENT, "cu_seqlens", -1, "");
    rollouts = batch();
    rollouts.rewards.len = 3;
    REFUSED(ls_advantages(device, recipe, &rollouts, &none), ARGUMENT, "rewards", -1, "expected 4");
    rollouts = batch();
    memset(&rollouts.rewards, 0, sizeof rollouts.rewards);
    memset(&rollouts.cu_groups, 0, sizeof rollouts.cu_groups);
    REFUSED(ls_advantages(device, recipe, &rollouts, &none), COLUMNS, NULL, -1, "cu_groups (for batch), rewards (for advantage)");

    rollouts = batch();
    REFUSED(ls_loss(NULL, recipe, &rollouts, credit, 0, &output), POINTER, "device", -1, "null");
    REFUSED(ls_loss(device, NULL, &rollouts, credit, 0, &output), POINTER, "recipe", -1, "null");
    REFUSED(ls_loss(device, recipe, NULL, credit, 0, &output), POINTER, "rollouts", -1, "null");
    REFUSED(ls_loss(device, recipe, &rollouts, NULL, 0, &output), POINTER, "credit", -1, "null");
    REFUSED(ls_loss(device, recipe, &rollouts, credit, 0, NULL), POINTER, "out", -1, "null");
    REFUSED(ls_loss(device, recipe, &rollouts, credit, 8, &output), ARGUMENT, "outputs", -1, "is 8");
    REFUSED(ls_loss_into(device, recipe, &rollouts, credit, 0, NULL), POINTER, "out", -1, "null");
    FINE(ls_loss(device, recipe, &rollouts, credit, LS_OUTPUT_ALL, &output));
    memcpy(bad, LOGP, sizeof bad);
    bad[4] = 0.5f;
    rollouts.logp.data = bad;
    REFUSED(ls_loss_into(device, recipe, &rollouts, credit, 0, output), ARGUMENT, "logp", 4, "0.5");
    bad[4] = NAN;
    REFUSED(ls_loss_into(device, recipe, &rollouts, credit, 0, output), ARGUMENT, "logp", 4, "NaN");
    /* After a failure the result is empty and can be reused. */
    if (ls_output_arrays(output, NULL, 0) > 1) failures++;
    bad[4] = LOGP[4];
    FINE(ls_loss_into(device, recipe, &rollouts, credit, 0, output));
    rollouts.logp.len = 9;
    REFUSED(ls_loss_into(device, recipe, &rollouts, credit, 0, output), ARGUMENT, "logp", -1, "expected 10");
    ls_output_free(output);

    rollouts = batch();
    REFUSED(ls_step(NULL, recipe, &rollouts, &none, &output), POINTER, "device", -1, "null");
    if (none != NULL || output != NULL) failures++;
    REFUSED(ls_step(device, NULL, &rollouts, &none, &output), POINTER, "recipe", -1, "null");
    REFUSED(ls_step(device, recipe, NULL, &none, &output), POINTER, "rollouts", -1, "null");
    REFUSED(ls_step(device, recipe, &rollouts, NULL, &output), POINTER, "credit", -1, "null");
    REFUSED(ls_step(device, recipe, &rollouts, &none, NULL), POINTER, "output", -1, "null");
}

static void results(const ls_device *device, const ls_recipe *recipe, const ls_credit *credit) {
    const ls_rollouts rollouts = batch();
    ls_credit_views views = {.size = sizeof views, .advantage = {REWARDS, 3}};
    ls_credit *made;
    ls_output *output;
    ls_array array;
    double numbers[64];
    const double sums[13] = {0};
    const float maxima[2] = {0, 0};
    REFUSED(ls_credit_new(NULL, &made), POINTER, "views", -1, "null");
    REFUSED(ls_credit_new(&views, NULL), POINTER, "out", -1, "null");
    FINE(ls_credit_new(&views, &made));
    REFUSED(ls_loss(device, recipe, &rollouts, made, 0, &output), ARGUMENT, "credit.advantage", -1, "expected 4");
    ls_credit_free(made);
    views.loss_mask.len = 2;
    REFUSED(ls_credit_new(&views, &made), POINTER, "loss_mask", -1, "has 2 entries");
    views.advantage.data = NULL;
    views.advantage.len = 0;
    REFUSED(ls_credit_new(&views, &made), POINTER, "advantage", -1, "null");
    views.size = 4;
    REFUSED(ls_credit_new(&views, &made), ARGUMENT, "views", -1, "sizeof");

    REFUSED(ls_credit_array(NULL, "advantage", &array), POINTER, "credit", -1, "null");
    REFUSED(ls_credit_array(credit, NULL, &array), POINTER, "name", -1, "null");
    REFUSED(ls_credit_array(credit, "advantage", NULL), POINTER, "out", -1, "null");
    REFUSED(ls_credit_array(credit, "returns", &array), ABSENT, "name", -1, "the result has advantage");
    NOTHING(ls_credit_arrays(NULL, NULL, 0) == 0, "credit");
    NOTHING(ls_credit_arrays(credit, NULL, 5) == 0, "out");
    FINE(ls_loss(device, recipe, &rollouts, credit, 0, &output));
    REFUSED(ls_output_array(NULL, "coef", &array), POINTER, "output", -1, "null");
    REFUSED(ls_output_array(output, NULL, &array), POINTER, "name", -1, "null");
    REFUSED(ls_output_array(output, "coef", NULL), POINTER, "out", -1, "null");
    REFUSED(ls_output_array(output, "\xff", &array), ARGUMENT, "name", 0, "UTF-8");
    REFUSED(ls_output_array(output, "metrics", &array), ABSENT, "name", -1, "the result has coef");
    NOTHING(ls_output_arrays(NULL, NULL, 0) == 0, "output");
    NOTHING(ls_output_arrays(output, NULL, 5) == 0, "out");
    REFUSED(ls_metrics(1, NULL, 13, maxima, numbers, 64), POINTER, "sums", -1, "null");
    REFUSED(ls_metrics(1, sums, 12, maxima, numbers, 64), ARGUMENT, "sums", -1, "expected 13");
    REFUSED(ls_metrics(1, sums, 13, NULL, numbers, 64), POINTER, "maxima", -1, "null");
    REFUSED(ls_metrics(1, sums, 13, maxima, NULL, 64), POINTER, "out", -1, "null");
    REFUSED(ls_metrics(1, sums, 13, maxima, numbers, 3), ARGUMENT, "out", -1, "room for 3");

    ls_totals *totals, *none;
    static uint8_t bytes[LS_TOTALS_BYTES];
    static int64_t limbs[LS_TOTALS_LIMBS];
    double loss, of_ranks[2];
    uint64_t counts[3];
    REFUSED(ls_totals_new(NULL), POINTER, "out", -1, "null");
    REFUSED(ls_totals_of(NULL, &none), POINTER, "output", -1, "null");
    REFUSED(ls_totals_of(output, NULL), POINTER, "out", -1, "null");
    FINE(ls_totals_of(output, &totals));
    REFUSED(ls_totals_loss(NULL, &loss), POINTER, "totals", -1, "null");
    REFUSED(ls_totals_loss(totals, NULL), POINTER, "out", -1, "null");
    REFUSED(ls_totals_loss(totals, &loss), ABSENT, "loss", -1, "computed without it");
    REFUSED(ls_totals_metrics(NULL, numbers, 64), POINTER, "totals", -1, "null");
    REFUSED(ls_totals_metrics(totals, numbers, 64), ABSENT, "metrics", -1, "computed without it");
    REFUSED(ls_totals_counts(NULL, counts), POINTER, "totals", -1, "null");
    REFUSED(ls_totals_counts(totals, NULL), POINTER, "out", -1, "null");
    REFUSED(ls_totals_merge(NULL, totals), POINTER, "totals", -1, "null");
    REFUSED(ls_totals_merge(totals, NULL), POINTER, "other", -1, "null");
    REFUSED(ls_totals_to_bytes(NULL, bytes, sizeof bytes), POINTER, "totals", -1, "null");
    REFUSED(ls_totals_to_bytes(totals, NULL, sizeof bytes), POINTER, "out", -1, "null");
    REFUSED(ls_totals_to_bytes(totals, bytes, 10), ARGUMENT, "out", -1, "room for 10");
    FINE(ls_totals_to_bytes(totals, bytes, sizeof bytes));
    REFUSED(ls_totals_from_bytes(NULL, sizeof bytes, &none), POINTER, "bytes", -1, "null");
    REFUSED(ls_totals_from_bytes(bytes, sizeof bytes, NULL), POINTER, "out", -1, "null");
    REFUSED(ls_totals_from_bytes(bytes, 10, &none), ARGUMENT, "bytes of policy totals", -1, "10");
    bytes[0] = 0;
    REFUSED(ls_totals_from_bytes(bytes, sizeof bytes, &none), ARGUMENT, "bytes of policy totals", 0, "magic");
    REFUSED(ls_totals_to_limbs(NULL, limbs, LS_TOTALS_LIMBS, of_ranks), POINTER, "totals", -1, "null");
    REFUSED(ls_totals_to_limbs(totals, NULL, LS_TOTALS_LIMBS, of_ranks), POINTER, "limbs", -1, "null");
    REFUSED(ls_totals_to_limbs(totals, limbs, LS_TOTALS_LIMBS, NULL), POINTER, "maxima", -1, "null");
    REFUSED(ls_totals_to_limbs(totals, limbs, 7, of_ranks), ARGUMENT, "limbs", -1, "room for 7");
    FINE(ls_totals_to_limbs(totals, limbs, LS_TOTALS_LIMBS, of_ranks));
    REFUSED(ls_totals_from_limbs(NULL, LS_TOTALS_LIMBS, of_ranks, &none), POINTER, "limbs", -1, "null");
    REFUSED(ls_totals_from_limbs(limbs, LS_TOTALS_LIMBS, NULL, &none), POINTER, "maxima", -1, "null");
    REFUSED(ls_totals_from_limbs(limbs, LS_TOTALS_LIMBS, of_ranks, NULL), POINTER, "out", -1, "null");
    REFUSED(ls_totals_from_limbs(limbs, 7, of_ranks, &none), ARGUMENT, "limbs", -1, "7");
    limbs[0] = -1;
    REFUSED(ls_totals_from_limbs(limbs, LS_TOTALS_LIMBS, of_ranks, &none), ARGUMENT, "limbs", 0, "ranks");
    ls_totals_free(totals);
    ls_output_free(output);
}

static void plans(const ls_device *device, const ls_recipe *recipe) {
    const ls_plan_options good = {.size = sizeof good, .calls = 3, .tokens = 10, .sequences = 4, .groups = 2, .outputs = LS_OUTPUT_ALL, .exact = 1};
    ls_plan_options options = good;
    ls_plan *plan, *of_loss;
    ls_slot slot;
    ls_rollouts rollouts = batch();
    REFUSED(ls_plan_new(NULL, &options, &plan), POINTER, "recipe", -1, "null");
    REFUSED(ls_plan_new(recipe, NULL, &plan), POINTER, "options", -1, "null");
    REFUSED(ls_plan_new(recipe, &options, NULL), POINTER, "out", -1, "null");
    options.size = 0;
    REFUSED(ls_plan_new(recipe, &options, &plan), ARGUMENT, "options", -1, "sizeof");
    for (uint32_t wrong = 0; wrong < 8; wrong += 4) {
        options = good;
        options.calls = wrong;
        REFUSED(ls_plan_new(recipe, &options, &plan), ARGUMENT, "calls", -1, "expected LS_CALL");
    }
    options = good;
    options.outputs = 16;
    REFUSED(ls_plan_new(recipe, &options, &plan), ARGUMENT, "outputs", -1, "is 16");
    for (int which = 1; which < 6; which++) { // a batch may have no tokens
        options = good;
        *(which % 3 == 0 ? &options.tokens : which % 3 == 1 ? &options.sequences : &options.groups) = which < 3 ? 0 : UINT64_MAX;
        REFUSED(ls_plan_new(recipe, &options, &plan), PLAN, NULL, -1, "capacity.");
    }
    FINE(ls_plan_new(recipe, &good, &plan));
    options = good;
    options.calls = LS_CALL_LOSS;
    FINE(ls_plan_new(recipe, &options, &of_loss));
    NOTHING(ls_plan_workspace_bytes(NULL) == 0, "plan");
    NOTHING(ls_plan_slots(NULL, NULL, 0) == 0, "plan");
    NOTHING(ls_plan_slots(plan, NULL, 3) == 0, "out");
    NOTHING(ls_plan_launches(NULL, NULL, 0) == 0, "plan");
    NOTHING(ls_plan_launches(plan, NULL, 3) == 0, "out");
    NOTHING(ls_plan_host_stages(NULL, NULL, 0) == 0, "plan");
    REFUSED(ls_plan_slot(NULL, "coef", &slot), POINTER, "plan", -1, "null");
    REFUSED(ls_plan_slot(plan, NULL, &slot), POINTER, "name", -1, "null");
    REFUSED(ls_plan_slot(plan, "coef", NULL), POINTER, "out", -1, "null");
    REFUSED(ls_plan_slot(plan, "gradient", &slot), ABSENT, "name", -1, "the plan has ");

    const size_t bytes = ls_plan_workspace_bytes(plan);
    char *workspace = calloc(bytes + 8, 1);
    typedef ls_status run(const ls_plan *, const ls_device *, void *, const ls_rollouts *, const ls_credit_views *, void *, size_t);
    run *const runs[] = {ls_plan_enqueue, ls_plan_run};
    for (int i = 0; i < 2; i++) {
        run *const each = runs[i];
        ls_credit_views views = {.size = sizeof views, .advantage = {REWARDS, 3}};
        REFUSED(each(NULL, device, NULL, &rollouts, NULL, workspace, bytes), POINTER, "plan", -1, "null");
        REFUSED(each(plan, NULL, NULL, &rollouts, NULL, workspace, bytes), POINTER, "device", -1, "null");
        REFUSED(each(plan, device, NULL, NULL, NULL, workspace, bytes), POINTER, "rollouts", -1, "null");
        REFUSED(each(plan, device, NULL, &rollouts, NULL, NULL, bytes), POINTER, "workspace", -1, "null");
        REFUSED(each(plan, device, NULL, &rollouts, NULL, workspace, bytes - 1), PLAN, NULL, -1, "workspace has");
        REFUSED(each(plan, device, NULL, &rollouts, NULL, workspace + 1, bytes), PLAN, NULL, -1, "not aligned");
        REFUSED(each(of_loss, device, NULL, &rollouts, NULL, workspace, bytes), PLAN, NULL, -1, "credit's views");
        REFUSED(each(of_loss, device, NULL, &rollouts, &views, workspace, bytes), ARGUMENT, "credit.advantage", -1, "expected 4");
        views.size = 3;
        REFUSED(each(of_loss, device, NULL, &rollouts, &views, workspace, bytes), ARGUMENT, "credit", -1, "sizeof");
        rollouts.rewards.len = 5;
        REFUSED(each(plan, device, NULL, &rollouts, NULL, workspace, bytes), ARGUMENT, "rewards", -1, "expected 4");
        memset(&rollouts.rewards, 0, sizeof rollouts.rewards);
        REFUSED(each(plan, device, NULL, &rollouts, NULL, workspace, bytes), COLUMNS, NULL, -1, "rewards (for advantage)");
        rollouts = batch();
        rollouts.logp_old.data = CROOKED(const float *);
        REFUSED(each(plan, device, NULL, &rollouts, NULL, workspace, bytes), POINTER, "logp_old", -1, "aligned");
        rollouts = batch();
    }
    const uint32_t falls[] = {0, 3, 2, 7, 10}, beyond[] = {0, 2, 5};
    rollouts.cu_seqlens.data = falls;
    REFUSED(ls_plan_run(plan, device, NULL, &rollouts, NULL, workspace, bytes), ARGUMENT, "cu_seqlens", 2, "the entry before");
    rollouts = batch();
    rollouts.cu_groups.data = beyond;
    REFUSED(ls_plan_run(plan, device, NULL, &rollouts, NULL, workspace, bytes), ARGUMENT, "cu_groups", 2, "sequences");
    rollouts = batch();
    float bad[10];
    memcpy(bad, LOGP, sizeof bad);
    bad[6] = 0.25f;
    rollouts.logp.data = bad;
    REFUSED(ls_plan_run(plan, device, NULL, &rollouts, NULL, workspace, bytes), ARGUMENT, "logp", 6, "0.25");
    FINE(ls_plan_enqueue(plan, device, NULL, &rollouts, NULL, workspace, bytes));
    REFUSED(ls_plan_alarms(plan, device, NULL, workspace, bytes), PLAN, NULL, -1, "row 2");
    REFUSED(ls_plan_alarms(NULL, device, NULL, workspace, bytes), POINTER, "plan", -1, "null");
    REFUSED(ls_plan_alarms(plan, NULL, NULL, workspace, bytes), POINTER, "device", -1, "null");
    REFUSED(ls_plan_alarms(plan, device, NULL, NULL, bytes), POINTER, "workspace", -1, "null");
    REFUSED(ls_plan_alarms(plan, device, NULL, workspace, bytes - 1), ARGUMENT, "workspace", -1, "expected at least");
    free(workspace);
    ls_plan_free(plan);
    ls_plan_free(of_loss);
}

int main(void) {
    ls_device *device;
    ls_recipe *recipe;
    ls_credit *credit;
    const ls_rollouts rollouts = batch();
    if (strlen(ls_last_error()) != 0 || ls_abi_version() != LS_ABI_VERSION || strlen(ls_version()) < 5) return 1;
    FINE(ls_device_open("cpu", 1, &device));
    FINE(ls_recipe_open("dapo", &recipe));
    FINE(ls_advantages(device, recipe, &rollouts, &credit));
    recipes();
    devices();
    columns(device, recipe);
    values(device, recipe, credit);
    results(device, recipe, credit);
    plans(device, recipe);

    pthread_t thread;
    void *clean = NULL;
    if (strlen(ls_last_error()) == 0 || pthread_create(&thread, NULL, other_thread, NULL) != 0) return 1;
    pthread_join(thread, &clean);
    if (clean == NULL) {
        printf("another thread sees this one's error\n");
        return 1;
    }
    ls_recipe_free(NULL);
    ls_device_free(NULL);
    ls_credit_free(NULL);
    ls_output_free(NULL);
    ls_plan_free(NULL);
    ls_totals_free(NULL);
    ls_credit_free(credit);
    ls_recipe_free(recipe);
    ls_device_free(device);
    if (failures > 0) return printf("%d of %d wrong calls did not end as they should\n", failures, calls), 1;
    printf("%d wrong calls, each a status\n", calls);
    return 0;
}
