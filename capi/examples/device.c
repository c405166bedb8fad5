/* A plan over a device's memory, on a stream: `device cuda:0`, `device rocm:0`, or `device cpu`. Prints the bits of what it computes. */
#include <inttypes.h>

#include "driver.h"
#include "lockstep.h"

static void need(ls_status status) {
    if (status == LS_STATUS_OK) return;
    fprintf(stderr, "status %d: %s\n", (int)status, ls_last_error());
    exit(1);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "cuda:0";
    const uint32_t cu_seqlens[] = {0, 3, 5, 7, 10}, cu_groups[] = {0, 2, 4};
    const float rewards[] = {1, 0, 0, 1};
    const float logp_old[] = {-0.5f, -1.0f, -0.25f, -2.0f, -0.375f, -0.875f, -1.125f, -0.5f, -0.625f, -0.125f};
    float logp[10];

    ls_device *device;
    ls_recipe *recipe;
    need(ls_device_open(name, 0, &device));
    fprintf(stderr, "%s\n", ls_device_describe(device));
    need(ls_recipe_open("dapo", &recipe));

    /* Made once. */
    ls_plan *plan;
    const ls_plan_options options = {.size = sizeof options, .calls = LS_CALL_ADVANTAGES + LS_CALL_LOSS, .tokens = 10,
                                     .sequences = 4, .groups = 2, .outputs = LS_OUTPUT_ALL, .exact = 1};
    need(ls_plan_new(recipe, &options, &plan));
    ls_slot loss, coef;
    need(ls_plan_slot(plan, "loss", &loss));
    need(ls_plan_slot(plan, "coef", &coef));

    /* Columns and workspace in the device's memory, and a stream: a trainer has its own. */
    const struct driver driver = driver_open(name);
    const size_t bytes = ls_plan_workspace_bytes(plan);
    char *workspace = driver_upload(&driver, NULL, bytes);
    void *memory[5] = {driver_upload(&driver, cu_seqlens, sizeof cu_seqlens), driver_upload(&driver, cu_groups, sizeof cu_groups),
                       driver_upload(&driver, rewards, sizeof rewards), driver_upload(&driver, logp_old, sizeof logp_old), NULL};
    ls_rollouts rollouts = {.size = sizeof rollouts};
    rollouts.cu_seqlens = (ls_span_u32){memory[0], 5};
    rollouts.cu_groups = (ls_span_u32){memory[1], 3};
    rollouts.rewards = (ls_span_f32){memory[2], 4};
    rollouts.logp_old = (ls_span_f32){memory[3], 10};

    for (int update = 0; update < 2; update++) {
        for (int i = 0; i < 10; i++) logp[i] = logp_old[i] * (update == 0 ? 1.0f : 0.75f);
        memory[4] = driver_upload(&driver, logp, sizeof logp);
        rollouts.logp = (ls_span_f32){memory[4], 10};

        /* Launches alone: no allocation, no copy, no waiting. */
        need(ls_plan_enqueue(plan, device, driver.stream, &rollouts, NULL, workspace, bytes));
        /* Where it may wait: was there a bad value? */
        need(ls_plan_alarms(plan, device, driver.stream, workspace, bytes));

        uint64_t bits;
        uint32_t words[10];
        driver_download(&driver, &bits, workspace + loss.offset, sizeof bits);
        driver_download(&driver, words, workspace + coef.offset, sizeof words);
        printf("loss %016" PRIx64 "\ncoef", bits);
        for (size_t i = 0; i < coef.len; i++) printf(" %08" PRIx32, words[i]);
        printf("\n");
        driver_free(&driver, memory[4]);
    }

    for (int i = 0; i < 4; i++) driver_free(&driver, memory[i]);
    driver_free(&driver, workspace);
    ls_plan_free(plan);
    ls_recipe_free(recipe);
    ls_device_free(device);
    return 0;
}
