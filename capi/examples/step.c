/* Advantages, loss and dL/dlogp of a batch in the host's memory. Prints the bits of what it computes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"

static void need(ls_status status) {
    if (status == LS_STATUS_OK) return;
    const char *argument = ls_last_error_argument();
    fprintf(stderr, "status %d, argument %s: %s\n", (int)status, argument ? argument : "none", ls_last_error());
    exit(1);
}

int main(void) {
    if (ls_abi_version() != LS_ABI_VERSION) {
        fprintf(stderr, "the header is of interface %d, the library of %u\n", LS_ABI_VERSION, (unsigned)ls_abi_version());
        return 1;
    }
    /* Two prompts with two responses each; 3 + 2 + 2 + 3 response tokens. */
    const uint32_t cu_seqlens[] = {0, 3, 5, 7, 10}, cu_groups[] = {0, 2, 4};
    const float rewards[] = {1, 0, 0, 1};
    const float logp_old[] = {-0.5f, -1.0f, -0.25f, -2.0f, -0.375f, -0.875f, -1.125f, -0.5f, -0.625f, -0.125f};
    float logp[10];

    ls_device *device;
    ls_recipe *recipe;
    need(ls_device_open("cpu", 0, &device));
    need(ls_recipe_open("dapo", &recipe));

    ls_rollouts rollouts = {.size = sizeof rollouts};
    rollouts.cu_seqlens = (ls_span_u32){cu_seqlens, 5};
    rollouts.cu_groups = (ls_span_u32){cu_groups, 3};
    rollouts.rewards = (ls_span_f32){rewards, 4};
    rollouts.logp_old = (ls_span_f32){logp_old, 10};
    rollouts.logp = (ls_span_f32){logp, 10};

    /* Once for each batch. */
    ls_credit *credit;
    need(ls_advantages(device, recipe, &rollouts, &credit));

    /* For each update, with new log-probabilities; the result's memory is used again. */
    ls_output *output = NULL;
    for (int update = 0; update < 2; update++) {
        for (int i = 0; i < 10; i++) logp[i] = logp_old[i] * (update == 0 ? 1.0f : 0.75f);
        if (output == NULL)
            need(ls_loss(device, recipe, &rollouts, credit, LS_OUTPUT_ALL, &output));
        else
            need(ls_loss_into(device, recipe, &rollouts, credit, LS_OUTPUT_ALL, output));

        ls_array loss, coef;
        need(ls_output_array(output, "loss", &loss));
        need(ls_output_array(output, "coef", &coef));
        uint64_t bits;
        memcpy(&bits, loss.data, sizeof bits);
        printf("loss %016" PRIx64 "\ncoef", bits);
        for (size_t i = 0; i < coef.len; i++) {
            uint32_t word;
            memcpy(&word, (const float *)coef.data + i, sizeof word);
            printf(" %08" PRIx32, word);
        }
        printf("\n");
    }

    ls_output_free(output);
    ls_credit_free(credit);
    ls_recipe_free(recipe);
    ls_device_free(device);
    return 0;
}
