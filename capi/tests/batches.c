/* Reads batches, runs every call on a device, and writes every array that comes back:
   `batches DEVICE <in >out`. tests/c_abi.rs makes the input and checks the output. Numbers are in the machine's
   own format. In: the recipe's name and the number of columns, then each column's number, length and bytes. Out:
   name, element type, length, bytes. A string is its length and its bytes. Lengths of arrays have 64 bits, all
   other numbers 32. */
#include "../examples/driver.h"
#include "lockstep.h"

static const size_t SIZES[] = {1, 4, 8, 4, 8};

static void need(ls_status status, const char *what) {
    if (status == LS_STATUS_OK) return;
    fprintf(stderr, "%s: status %d: %s\n", what, (int)status, ls_last_error());
    exit(1);
}

static int read_bytes(void *to, size_t bytes) { return fread(to, 1, bytes, stdin) == bytes; }

static uint64_t read_number(size_t bytes) {
    uint64_t number = 0;
    if (!read_bytes(&number, bytes)) {
        fprintf(stderr, "the input ends too early\n");
        exit(1);
    }
    return number;
}

static void say(const char *call, const char *name, ls_element element, const void *data, size_t len) {
    char whole[128];
    const int length = snprintf(whole, sizeof whole, "%s.%s", call, name);
    const uint32_t words[2] = {(uint32_t)length, (uint32_t)element};
    const uint64_t count = len;
    fwrite(&words[0], 4, 1, stdout);
    fwrite(whole, 1, (size_t)length, stdout);
    fwrite(&words[1], 4, 1, stdout);
    fwrite(&count, 8, 1, stdout);
    if (len > 0) fwrite(data, SIZES[element], len, stdout);
}

/* The span of a column in ls_rollouts, for any element type. */
struct place {
    const void *data;
    size_t len;
};

/* The totals of the loss survive bytes, limbs and a merge with the totals of no rows unchanged. */
static void totals_of(const ls_output *output) {
    ls_totals *of, *none, *again;
    static unsigned char bytes[LS_TOTALS_BYTES], others[LS_TOTALS_BYTES];
    static int64_t limbs[LS_TOTALS_LIMBS];
    double maxima[2], loss, metrics[64];
    uint64_t counts[3];
    size_t names = 0;
    while (ls_metric_name_at(names) != NULL) names++;
    need(ls_totals_of(output, &of), "totals");
    need(ls_totals_to_bytes(of, bytes, sizeof bytes), "bytes");
    need(ls_totals_to_limbs(of, limbs, LS_TOTALS_LIMBS, maxima), "limbs");
    need(ls_totals_from_limbs(limbs, LS_TOTALS_LIMBS, maxima, &again), "from limbs");
    need(ls_totals_to_bytes(again, others, sizeof others), "bytes again");
    if (memcmp(bytes, others, sizeof bytes) != 0) need(LS_STATUS_PANIC, "other bytes after limbs");
    ls_totals_free(again);
    need(ls_totals_from_bytes(bytes, sizeof bytes, &again), "from bytes");
    need(ls_totals_new(&none), "new");
    need(ls_totals_merge(none, again), "merge");
    need(ls_totals_to_bytes(none, others, sizeof others), "bytes merged");
    need(ls_totals_loss(none, &loss), "loss");
    need(ls_totals_counts(none, counts), "counts");
    need(ls_totals_metrics(none, metrics, 64), "metrics");
    say("totals", "bytes", LS_ELEMENT_U8, others, sizeof others);
    say("totals", "limbs", LS_ELEMENT_U64, limbs, LS_TOTALS_LIMBS);
    say("totals", "loss", LS_ELEMENT_F64, &loss, 1);
    say("totals", "counts", LS_ELEMENT_U64, counts, 3);
    say("totals", "metrics", LS_ELEMENT_F64, metrics, names);
    ls_totals_free(of);
    ls_totals_free(none);
    ls_totals_free(again);
}

static void write_credit(const char *call, const ls_credit *credit) {
    ls_array arrays[32];
    const size_t count = ls_credit_arrays(credit, arrays, 32);
    for (size_t i = 0; i < count; i++) say(call, arrays[i].name, arrays[i].element, arrays[i].data, arrays[i].len);
}

static void write_output(const char *call, const ls_output *output) {
    ls_array arrays[32];
    const size_t count = ls_output_arrays(output, arrays, 32);
    for (size_t i = 0; i < count; i++) say(call, arrays[i].name, arrays[i].element, arrays[i].data, arrays[i].len);
}

/* A plan of exactly this batch's size, over device memory. */
static void run_plan(const char *call, const struct driver *driver, const ls_device *device, const ls_recipe *recipe,
                     const ls_rollouts *host, uint32_t calls, const ls_credit *credit) {
    ls_column column;
    ls_rollouts rollouts = {.size = sizeof rollouts};
    void *held[80];
    size_t holds = 0;
    for (size_t number = 0; ls_column_at(number, &column) == LS_STATUS_OK; number++) {
        struct place place;
        memcpy(&place, (const char *)host + column.offset, sizeof place);
        if (place.data == NULL) continue;
        held[holds] = driver_upload(driver, place.data, place.len * SIZES[column.element]);
        place.data = held[holds++];
        memcpy((char *)&rollouts + column.offset, &place, sizeof place);
    }
    ls_credit_views views = {.size = sizeof views, .per_token = ls_recipe_per_token(recipe)};
    ls_array arrays[32];
    const size_t count = credit == NULL ? 0 : ls_credit_arrays(credit, arrays, 32);
    for (size_t i = 0; i < count; i++) {
        const int which = strcmp(arrays[i].name, "advantage") == 0   ? 1
                          : strcmp(arrays[i].name, "loss_mask") == 0 ? 2
                          : strcmp(arrays[i].name, "weights") == 0   ? 3
                          : strcmp(arrays[i].name, "returns") == 0   ? 4
                                                                     : 0;
        if (which == 0) continue;
        void *at = driver_upload(driver, arrays[i].data, arrays[i].len * SIZES[arrays[i].element]);
        held[holds++] = at;
        if (which == 1) views.advantage = (ls_span_f32){at, arrays[i].len};
        if (which == 2) views.loss_mask = (ls_span_u8){at, arrays[i].len};
        if (which == 3) views.weights = (ls_span_f32){at, arrays[i].len};
        if (which == 4) views.returns = (ls_span_f32){at, arrays[i].len};
    }

    ls_plan *plan;
    const ls_plan_options options = {.size = sizeof options, .calls = calls,
                                     .tokens = host->cu_seqlens.data[host->cu_seqlens.len - 1],
                                     .sequences = host->cu_seqlens.len - 1, .groups = host->cu_groups.len - 1,
                                     .outputs = LS_OUTPUT_ALL, .exact = 1};
    need(ls_plan_new(recipe, &options, &plan), "plan");
    const size_t bytes = ls_plan_workspace_bytes(plan);
    void *workspace = driver_upload(driver, NULL, bytes);
    const ls_credit_views *with = credit == NULL ? NULL : &views;
    need(ls_plan_enqueue(plan, device, driver->stream, &rollouts, with, workspace, bytes), "enqueue");
    need(ls_plan_alarms(plan, device, driver->stream, workspace, bytes), "alarms");
    need(ls_plan_run(plan, device, driver->stream, &rollouts, with, workspace, bytes), "run");

    char *results = malloc(bytes + 1);
    driver_download(driver, results, workspace, bytes);
    ls_slot slots[64];
    const size_t found = ls_plan_slots(plan, slots, 64);
    for (size_t i = 0; i < found; i++) {
        ls_slot named;
        need(ls_plan_slot(plan, slots[i].name, &named), slots[i].name);
        say(call, slots[i].name, slots[i].element, results + slots[i].offset, slots[i].len);
    }
    ls_slot sums, maxima, counts;
    if (ls_plan_slot(plan, "sums", &sums) == LS_STATUS_OK && ls_plan_slot(plan, "maxima", &maxima) == LS_STATUS_OK &&
        ls_plan_slot(plan, "counts", &counts) == LS_STATUS_OK) {
        double metrics[64];
        size_t names = 0;
        uint64_t tokens;
        while (ls_metric_name_at(names) != NULL) names++;
        memcpy(&tokens, results + counts.offset, sizeof tokens);
        need(ls_metrics(tokens, (const double *)(const void *)(results + sums.offset), sums.len,
                        (const float *)(const void *)(results + maxima.offset), metrics, 64), "metrics");
        say(call, "metrics_of_sums", LS_ELEMENT_F64, metrics, names);
    }
    free(results);
    driver_free(driver, workspace);
    for (size_t i = 0; i < holds; i++) driver_free(driver, held[i]);
    ls_plan_free(plan);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "cpu";
    const struct driver driver = driver_open(name);
    ls_device *device;
    need(ls_device_open(name, 0, &device), name);

    uint32_t length;
    while (read_bytes(&length, sizeof length)) {
        char source[128];
        void *held[80];
        size_t holds = 0;
        ls_rollouts rollouts = {.size = sizeof rollouts};
        if (length >= sizeof source || !read_bytes(source, length)) need(LS_STATUS_PANIC, "a name");
        source[length] = 0;
        const uint64_t columns = read_number(4);
        for (uint64_t i = 0; i < columns; i++) {
            ls_column column;
            need(ls_column_at(read_number(4), &column), "column");
            struct place place = {.len = read_number(8)};
            const size_t bytes = place.len * SIZES[column.element];
            /* Allocated at exactly this size, so that a sanitizer catches an access one byte past the end. */
            held[holds] = malloc(bytes > 0 ? bytes : 1);
            if (!read_bytes(held[holds], bytes)) need(LS_STATUS_PANIC, column.name);
            place.data = held[holds++];
            memcpy((char *)&rollouts + column.offset, &place, sizeof place);
        }

        ls_recipe *recipe;
        ls_credit *credit, *both;
        ls_output *output, *again;
        need(ls_recipe_open(source, &recipe), source);
        need(ls_advantages(device, recipe, &rollouts, &credit), source);
        need(ls_loss(device, recipe, &rollouts, credit, LS_OUTPUT_ALL, &output), source);
        write_credit("advantages", credit);
        write_output("loss", output);
        totals_of(output);
        need(ls_loss_into(device, recipe, &rollouts, credit, 0, output), source);
        need(ls_loss_into(device, recipe, &rollouts, credit, LS_OUTPUT_ALL, output), source);
        write_output("loss_into", output);
        need(ls_step(device, recipe, &rollouts, &both, &again), source);
        write_credit("step", both);
        write_output("step", again);
        run_plan("plan", &driver, device, recipe, &rollouts, LS_CALL_ADVANTAGES + LS_CALL_LOSS, NULL);
        run_plan("plan_of_loss", &driver, device, recipe, &rollouts, LS_CALL_LOSS, credit);

        ls_output_free(output);
        ls_output_free(again);
        ls_credit_free(credit);
        ls_credit_free(both);
        ls_recipe_free(recipe);
        for (size_t i = 0; i < holds; i++) free(held[i]);
    }
    ls_device_free(device);
    return 0;
}
