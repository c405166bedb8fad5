// Lockstep for C and C++: recipes of RL maths for LLM post-training, the same bits on every machine.
//
// Every function that returns a status checks pointers, lengths, offsets and values. A refused call returns an
// error status; the thread's last error holds the message, the argument and the index. Handles are opaque; free
// each with its own function. The library owns the strings and arrays that functions return. In the comments N
// is the number of tokens, S of sequences, G of groups.


#ifndef LOCKSTEP_H
#define LOCKSTEP_H

// Written by cbindgen from capi/src: do not edit.

#include <stddef.h>
#include <stdint.h>

// The version of this interface. Every change that breaks a compiled program raises it. New columns,
// statuses and functions do not: columns are appended, and structs that you fill in state their size.
#define LS_ABI_VERSION 1

// The call `ls_advantages`.
#define LS_CALL_ADVANTAGES 1

// The call `ls_loss`.
#define LS_CALL_LOSS 2

// The loss, total and per sequence.
#define LS_OUTPUT_LOSS 1

// The metrics; implies the loss.
#define LS_OUTPUT_METRICS 2

// The loss of each token; implies the loss.
#define LS_OUTPUT_TOKEN_LOSS 4

// Everything. Gradients are always computed; 0 asks for gradients alone, the fast path.
#define LS_OUTPUT_ALL 7

// Number of bytes that `ls_totals_to_bytes` writes.
#define LS_TOTALS_BYTES 4016

// Number of integers that `ls_totals_to_limbs` writes.
#define LS_TOTALS_LIMBS 999

// The outcome of a call.
enum ls_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Success.
  LS_STATUS_OK = 0,
  // A required pointer is null, or a pointer is not aligned for its type.
  LS_STATUS_POINTER = 1,
  // A length, offset or value is invalid; `ls_last_error_argument` and `ls_last_error_index` locate it.
  LS_STATUS_ARGUMENT = 2,
  // Columns that the recipe reads are missing; the message lists all of them.
  LS_STATUS_COLUMNS = 3,
  // The recipe is unknown, cannot be parsed, or combines incompatible choices.
  LS_STATUS_RECIPE = 4,
  // The device does not exist, or failed.
  LS_STATUS_DEVICE = 5,
  // The plan cannot be made, or cannot run on the given input.
  LS_STATUS_PLAN = 6,
  // Nothing has the given name or number, or the result was not computed.
  LS_STATUS_ABSENT = 7,
  // A bug in Lockstep: a panic that was caught. Please report it.
  LS_STATUS_PANIC = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ls_status ls_status;
#else
typedef int32_t ls_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The type of an array's elements.
enum ls_element
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // `uint8_t`: a flag.
  LS_ELEMENT_U8 = 0,
  // `uint32_t`: an index, offset or id.
  LS_ELEMENT_U32 = 1,
  // `uint64_t`: a count.
  LS_ELEMENT_U64 = 2,
  // `float`.
  LS_ELEMENT_F32 = 3,
  // `double`.
  LS_ELEMENT_F64 = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ls_element ls_element;
#else
typedef int32_t ls_element;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The advantages of a batch and everything else that its loss reads.
typedef struct ls_credit ls_credit;

// The device that a call or plan runs on. Any number of threads may use it at once.
typedef struct ls_device ls_device;

// The loss, gradients and metrics of a batch.
typedef struct ls_output ls_output;

// A plan: launches over memory of a fixed size. Any number of threads may use it at once, each with its own
// workspace.
typedef struct ls_plan ls_plan;

// A recipe: one choice for each stage from rewards to gradients. Any number of threads may use it at once.
typedef struct ls_recipe ls_recipe;

// A rank's or micro-batch's exact contribution to the loss and metrics of the whole batch. However a batch
// is split, and in whatever order the totals of its parts are merged, loss and metrics are the same, bit for
// bit.
typedef struct ls_totals ls_totals;

// A column of `ls_rollouts`, for bindings that build the struct from the list of columns.
typedef struct ls_column {
  // The column's name. This and the other strings are never freed.
  const char *name;
  // What the column holds, with its unit.
  const char *meaning;
  // The column's length: `[N]` tokens, `[S]` sequences, `[G]` groups, `[S+1]` offsets…
  const char *shape;
  // The type of its elements.
  ls_element element;
  // Byte offset of its span in `ls_rollouts`.
  uint32_t offset;
} ls_column;

// The options of a plan.
typedef struct ls_plan_options {
  // `sizeof(ls_plan_options)`.
  uint32_t size;
  // `LS_CALL_ADVANTAGES`, `LS_CALL_LOSS`, or their sum.
  uint32_t calls;
  // N of the largest batch.
  uint64_t tokens;
  // S of the largest batch.
  uint64_t sequences;
  // G of the largest batch.
  uint64_t groups;
  // A sum of `LS_OUTPUT_…` values.
  uint32_t outputs;
  // Nonzero: every batch has exactly this size; 0: smaller batches come padded, offsets with their last
  // value.
  uint32_t exact;
} ls_plan_options;

// A result in a plan's workspace.
typedef struct ls_slot {
  // The result's name, as in `ls_credit_array` and `ls_output_array`; `sums` and `maxima` are for
  // `ls_metrics`. In a padded batch, the last of `counts` is the capacity in sequences.
  const char *name;
  // The number of elements.
  size_t len;
  // Byte offset in the workspace.
  size_t offset;
  // The type of the elements.
  ls_element element;
} ls_slot;

// A call that a plan runs on the host, with copies and waits. Such a plan cannot be captured.
typedef struct ls_host_stage {
  // The TOML key of the rule that has no launch.
  const char *stage;
  // Bytes copied to the host and back at full capacity.
  size_t bytes;
  // `LS_CALL_ADVANTAGES` or `LS_CALL_LOSS`.
  uint32_t call;
} ls_host_stage;

// An array of the caller's; a null `data` means that it is absent.
typedef struct ls_span_u32 {
  // The first element.
  const uint32_t *data;
  // The number of elements.
  size_t len;
} ls_span_u32;

// An array of the caller's; a null `data` means that it is absent.
typedef struct ls_span_u8 {
  // The first element.
  const uint8_t *data;
  // The number of elements.
  size_t len;
} ls_span_u8;

// An array of the caller's; a null `data` means that it is absent.
typedef struct ls_span_f32 {
  // The first element.
  const float *data;
  // The number of elements.
  size_t len;
} ls_span_f32;

// An array of the caller's; a null `data` means that it is absent.
typedef struct ls_span_f64 {
  // The first element.
  const double *data;
  // The number of elements.
  size_t len;
} ls_span_f64;

// An array of the caller's; a null `data` means that it is absent.
typedef struct ls_span_u64 {
  // The first element.
  const uint64_t *data;
  // The number of elements.
  size_t len;
} ls_span_u64;

// The columns of a batch. Leave out a column that the recipe does not read: a null `data`. A struct
// that is all zero except `size` has no columns.
typedef struct ls_rollouts {
  // `sizeof(ls_rollouts)`.
  uint32_t size;
  // 0.
  uint32_t reserved;
  // `[S+1]` sequence s holds tokens `cu_seqlens[s]..cu_seqlens[s+1]`
  struct ls_span_u32 cu_seqlens;
  // `[G+1]` group g holds sequences `cu_groups[g]..cu_groups[g+1]`: the responses to one prompt
  struct ls_span_u32 cu_groups;
  // `[N]` 0: the token is masked out (prompt, tool output, padding); if absent, no token is masked
  struct ls_span_u8 loss_mask;
  // `[N]` token ids
  struct ls_span_u32 tokens;
  // `[N]` log-probability under the policy that is trained, in nats
  struct ls_span_f32 logp;
  // `[N]` log-probability under the same policy when the update began
  struct ls_span_f32 logp_old;
  // `[N]` log-probability that the engine reported when it sampled
  struct ls_span_f32 logp_rollout;
  // `[N]` log-probability under the frozen reference
  struct ls_span_f32 logp_ref;
  // `[N]` log-probability under the newest policy, where logp_old is an older one that sampled the data (ReMix)
  struct ls_span_f32 logp_latest;
  // `[N]` log-probability under the policy before the last update (ReMix's convex KL)
  struct ls_span_f32 logp_previous;
  // `[N]` divergence of the policy from logp_old's at the token, over the top k of the vocabulary, at least 0 (DPPO)
  struct ls_span_f32 divergence;
  // `[N]` log-ratio computed elsewhere, for ratio.level given
  struct ls_span_f32 log_ratio;
  // `[N]` entropy of the policy's distribution at the token, in nats
  struct ls_span_f32 entropy;
  // `[N]` sum over the vocabulary of squared probabilities
  struct ls_span_f32 sum_p_squared;
  // `[N]` squared norm of the gradient of the token's log-probability
  struct ls_span_f32 score_norm;
  // `[S]` reward of each response; NaN: no score
  struct ls_span_f32 rewards;
  // `[N]` reward of each token
  struct ls_span_f32 token_rewards;
  // `[K·S]` K rewards of each response, one array of S after the other; NaN: no score
  struct ls_span_f32 reward_components;
  // `[K]` weight of each of the K rewards
  struct ls_span_f32 reward_weights;
  // `[S]` 0: the response is left out of its group's statistics
  struct ls_span_u8 valid;
  // `[G]` baseline of each prompt: the greedy response's reward (ReMax), a prior (V0.5), a tracked value (MSSR)
  struct ls_span_f32 baseline;
  // `[S]` weight of each response in its group's baseline (VCPO), from ops::vcpo_weights
  struct ls_span_f32 baseline_weights;
  // `[S]` weight of each response in the values of its prefix tree (TEMPO); absent: 1
  struct ls_span_f32 outcome_weights;
  // `[S]` not 0: the answer is right, its reasoning flawed (FAPO)
  struct ls_span_u8 flawed;
  // `[G]` position in its group of the response that the others were compared with (BRPO)
  struct ls_span_u32 reference;
  // `[S]` class of the answer, from ops::reward::majority (EVOL-RL)
  struct ls_span_u32 answer_class;
  // `[Σn²]` similarity of each pair of responses of a group, row by row, group after group (EVOL-RL)
  struct ls_span_f32 similarity;
  // `[S]` role that played the response (SPIRAL)
  struct ls_span_u32 roles;
  // `[P]` moving average of each role's reward, as the last batch left it; absent: 0, as before the first
  struct ls_span_f64 role_values;
  // `[N]` value of each token by the critic that is trained
  struct ls_span_f32 values;
  // `[N]` value of each token when the update began
  struct ls_span_f32 values_old;
  // `[S]` not 0: the response ended on its own; given with `truncated` and `bootstrap`, or not at all
  struct ls_span_u8 terminated;
  // `[S]` not 0: the response was cut off before its end; not beside `terminated`
  struct ls_span_u8 truncated;
  // `[S]` value of what would follow a truncated response
  struct ls_span_f32 bootstrap;
  // `[T+1]` turn k holds tokens `cu_turns[k]..cu_turns[k+1]`; each sequence starts a turn (MARS)
  struct ls_span_u32 cu_turns;
  // `[T]` reward of each turn
  struct ls_span_f32 turn_rewards;
  // `[T]` role that played each turn
  struct ls_span_u32 turn_roles;
  // `[S+1]` sequence s holds steps `cu_steps[s]..cu_steps[s+1]` (UI-S1)
  struct ls_span_u32 cu_steps;
  // `[U+1]` step k holds tokens `cu_step_tokens[k]..cu_step_tokens[k+1]`
  struct ls_span_u32 cu_step_tokens;
  // `[U]` reward of each step
  struct ls_span_f32 step_rewards;
  // `[U]` not 0: the step is the expert's
  struct ls_span_u8 step_matches;
  // `[3]` live tokens, sequences with a live token and sequences of the whole batch, where this is a part of it; absent: of this batch
  struct ls_span_u64 counts;
  // `[1]` random seed: a different one for every call
  struct ls_span_u64 seed;
  // `[1]` number of the training step, from 0
  struct ls_span_u64 step;
  // `[S]` how hard the response's prompt is, 0 to 1 (ROLL's weights)
  struct ls_span_f32 difficulty;
} ls_rollouts;

// The parts of a credit that a loss reads: in host memory for `ls_credit_new`, in device memory for a plan
// of the loss alone.
typedef struct ls_credit_views {
  // `sizeof(ls_credit_views)`.
  uint32_t size;
  // Nonzero: one advantage per token; 0: one per sequence.
  uint32_t per_token;
  // `[S]`, or `[N]` if per token.
  struct ls_span_f32 advantage;
  // `[N]`, the loss mask after filtering and rejection; absent: every token is live.
  struct ls_span_u8 loss_mask;
  // `[N]`, the weights of the rollout correction; absent: 1.
  struct ls_span_f32 weights;
  // `[N]`, the critic's targets; absent: the estimator has none.
  struct ls_span_f32 returns;
} ls_credit_views;

// A column that a recipe reads. The strings are never freed.
typedef struct ls_need {
  // The column's name.
  const char *column;
  // The TOML key of the stage that reads it.
  const char *stage;
  // A column that can take its place, or null.
  const char *other;
  // `LS_CALL_ADVANTAGES` or `LS_CALL_LOSS`.
  uint32_t call;
  // 1: the call fails without it.
  uint32_t required;
} ls_need;

// A duty that a recipe leaves to the training loop. The strings are never freed.
typedef struct ls_duty {
  // The duty's name.
  const char *name;
  // What the loop must do.
  const char *meaning;
} ls_duty;

// An array of a result, valid until the result is freed or overwritten.
typedef struct ls_array {
  // The array's name, which is never freed.
  const char *name;
  // The first element.
  const void *data;
  // The number of elements.
  size_t len;
  // The type of the elements.
  ls_element element;
} ls_array;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The library's `LS_ABI_VERSION`, to compare with the header's.
uint32_t ls_abi_version(void);

// The version of Lockstep, such as `0.1.0`.
const char *ls_version(void);

// Writes column `number`, counted from 0. `LS_STATUS_ABSENT` if `number` is past the last.
//
// Required:
// `out` is null or points to an `ls_column`.
ls_status ls_column_at(size_t number, struct ls_column *out);

// Opens a device by name: `cpu`, `cpu:avx2`, `cuda`, `cuda:1`, `rocm:0`. `threads` is for `cpu`; 0: one per
// core. A GPU's driver library is looked up by this call; building and linking need no vendor library. The
// choice of device changes the speed, never the bits.
//
// Required:
// `name` is null or a 0-terminated string; `out` is null or points to a pointer, which is null after a
// failure. Free the device with `ls_device_free`.
ls_status ls_device_open(const char *name, size_t threads, struct ls_device **out);

// A description of the device for logs, valid until the device is freed; null if `device` is null.
//
// Required:
// `device` is null or an open device.
const char *ls_device_describe(const struct ls_device *device);

// Frees a device; does nothing if it is null.
//
// Required:
// `device` is null, or an open device that is not in use.
void ls_device_free(struct ls_device *device);

// The message of the thread's last failed call; empty if none has failed. Valid until the thread's next
// failure.
const char *ls_last_error(void);

// The name of the argument or column that the thread's last failed call refused; null if none was at fault.
const char *ls_last_error_argument(void);

// The index of the bad entry in that argument; -1 if the fault is not in an array's entry.
int64_t ls_last_error_index(void);

// Makes a plan. The plan keeps a copy of the recipe.
//
// Required:
// `recipe` is null or open; `options` is null or as long as its first field states; `out` is null or points
// to a pointer, which is null after a failure. Free the plan with `ls_plan_free`.
ls_status ls_plan_new(const struct ls_recipe *recipe,
                      const struct ls_plan_options *options,
                      struct ls_plan **out);

// Frees a plan; does nothing if it is null.
//
// Required:
// `plan` is null, or an open plan that is not in use.
void ls_plan_free(struct ls_plan *plan);

// The size of the workspace in bytes; 0 if `plan` is null. Align a GPU workspace to 256 bytes, a CPU
// workspace to 8; zero it once.
//
// Required:
// `plan` is null or open.
size_t ls_plan_workspace_bytes(const struct ls_plan *plan);

// Writes where the result `name` lies in the workspace. `LS_STATUS_ABSENT` if the plan has no such result.
//
// Required:
// `plan` is null or open; `name` is null or a 0-terminated string; `out` is null or points to an `ls_slot`.
ls_status ls_plan_slot(const struct ls_plan *plan, const char *name, struct ls_slot *out);

// Writes where at most `capacity` of the results lie, and returns how many there are; 0 if `plan` is null.
//
// Required:
// `plan` is null or open; `out` has room for `capacity` entries, or `out` is null and `capacity` 0.
size_t ls_plan_slots(const struct ls_plan *plan, struct ls_slot *out, size_t capacity);

// Writes at most `capacity` names of the launched ops, in order, and returns how many there are; 0 if `plan`
// is null.
//
// Required:
// As for `ls_plan_slots`.
size_t ls_plan_launches(const struct ls_plan *plan, const char **out, size_t capacity);

// Writes at most `capacity` of the calls that run on the host, and returns how many there are; 0 if the plan
// consists of launches alone or is null.
//
// Required:
// As for `ls_plan_slots`.
size_t ls_plan_host_stages(const struct ls_plan *plan, struct ls_host_stage *out, size_t capacity);

// Enqueues the plan on a stream (`CUstream`, `cudaStream_t` or `hipStream_t`; null: the default stream; a
// CPU ignores it and runs at once). Columns, credit and workspace are in device memory. Unless
// `ls_plan_host_stages` lists any, the call neither allocates, copies nor waits, so a graph can capture it.
// A plan's first call on a device loads its kernels, which must have happened before a capture.
// Pass `credit` for a plan of the loss alone, else null.
// This call checks lengths against the plan's; `ls_plan_alarms` reports bad values. Offsets are trusted:
// `ls_plan_run` checks them.
//
// Required:
// Until the stream has run the plan: nobody writes the columns, which are initialised; nobody else uses the
// workspace, which was zeroed once; offsets start at 0, never decrease and end at most at the capacity. The
// stream belongs to the device.
ls_status ls_plan_enqueue(const struct ls_plan *plan,
                          const struct ls_device *device,
                          void *stream,
                          const struct ls_rollouts *rollouts,
                          const struct ls_credit_views *credit,
                          void *workspace,
                          size_t workspace_bytes);

// Waits for the stream and fails if a stage met a bad value: a log-probability above 0, a NaN, or a group of
// one where that is an error.
//
// Required:
// `workspace` is the workspace of this plan's last `ls_plan_enqueue`, not yet freed.
ls_status ls_plan_alarms(const struct ls_plan *plan,
                         const struct ls_device *device,
                         void *stream,
                         void *workspace,
                         size_t workspace_bytes);

// Like `ls_plan_enqueue`, with every check: checks the offsets, waits for the stream, reads the alarms, and
// reports the column and index of a bad value.
//
// Required:
// As for `ls_plan_enqueue`, except that the offsets may be invalid.
ls_status ls_plan_run(const struct ls_plan *plan,
                      const struct ls_device *device,
                      void *stream,
                      const struct ls_rollouts *rollouts,
                      const struct ls_credit_views *credit,
                      void *workspace,
                      size_t workspace_bytes);

// Opens a recipe, by name (`grpo`, `dapo`, `verl`; `ls_recipe_name_at` lists them) or from TOML. Text with a
// `=`, a `[` or a line break is read as TOML.
//
// Required:
// `source` is null or a 0-terminated string; `out` is null or points to a pointer, which is null after a
// failure. Free the recipe with `ls_recipe_free`.
ls_status ls_recipe_open(const char *source, struct ls_recipe **out);

// Frees a recipe; does nothing if it is null. Its plans stay valid.
//
// Required:
// `recipe` is null, or an open recipe that is not in use.
void ls_recipe_free(struct ls_recipe *recipe);

// The recipe's name, valid until the recipe is freed; null if `recipe` is null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_name(const struct ls_recipe *recipe);

// All its choices as TOML, valid until the recipe is freed; null if `recipe` is null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_toml(const struct ls_recipe *recipe);

// What the recipe reads, what it asks of the training loop, and its choices as TOML; valid until the recipe
// is freed; null if `recipe` is null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_explain(const struct ls_recipe *recipe);

// Returns 1 if the recipe makes one advantage per token; 0 if one per sequence, or if `recipe` is null.
//
// Required:
// `recipe` is null or an open recipe.
uint32_t ls_recipe_per_token(const struct ls_recipe *recipe);

// Writes at most `capacity` of the columns that the recipe reads, and returns how many there are; 0 if
// `recipe` is null.
//
// Required:
// `recipe` is null or an open recipe; `out` has room for `capacity` entries, or `out` is null and `capacity`
// 0.
size_t ls_recipe_needs(const struct ls_recipe *recipe, struct ls_need *out, size_t capacity);

// Writes at most `capacity` of the training loop's duties, and returns how many there are; 0 if `recipe` is
// null.
//
// Required:
// As for `ls_recipe_needs`.
size_t ls_recipe_duties(const struct ls_recipe *recipe, struct ls_duty *out, size_t capacity);

// The name of recipe `number`, counted from 0; null past the last. The string is never freed.
const char *ls_recipe_name_at(size_t number);

// The name of entry `number` of the array `metrics`, counted from 0; null past the last. The string is never
// freed.
const char *ls_metric_name_at(size_t number);

// Computes metrics from a plan's results `sums` and `maxima`, copied to the host, and the number of live
// tokens (the first of `counts`). `ls_metric_name_at` gives the names of the entries of `out`.
//
// Required:
// The arrays are null or as long as stated; `maxima` has two entries.
ls_status ls_metrics(uint64_t tokens,
                     const double *sums,
                     size_t sums_len,
                     const float *maxima,
                     double *out,
                     size_t capacity);

// Computes the advantages of a batch in host memory, and everything else that its loss reads. Call it once
// per batch.
//
// Required:
// Handles are null or open; every column is as long as stated; `out` is null or points to a pointer, which
// is null after a failure. Free the credit with `ls_credit_free`.
ls_status ls_advantages(const struct ls_device *device,
                        const struct ls_recipe *recipe,
                        const struct ls_rollouts *rollouts,
                        struct ls_credit **out);

// Computes the gradients, and what `outputs` asks for (a sum of `LS_OUTPUT_…`), of a batch or minibatch in
// host memory with its credit. Call it for each update, with new `logp`. `coef` is dL/dlogp.
//
// Required:
// As for `ls_advantages`. Free the result with `ls_output_free`.
ls_status ls_loss(const struct ls_device *device,
                  const struct ls_recipe *recipe,
                  const struct ls_rollouts *rollouts,
                  const struct ls_credit *credit,
                  uint32_t outputs,
                  struct ls_output **out);

// Like `ls_loss`, but overwrites the result of an earlier call and reuses its memory. Arrays read from it
// before become invalid. After a failure its contents are unspecified; it can be used again.
//
// Required:
// As for `ls_loss`; `out` is null, or an open loss that nobody else uses.
ls_status ls_loss_into(const struct ls_device *device,
                       const struct ls_recipe *recipe,
                       const struct ls_rollouts *rollouts,
                       const struct ls_credit *credit,
                       uint32_t outputs,
                       struct ls_output *out);

// Runs both calls with all results, for one update per batch. On a GPU the columns are uploaded once and the
// results downloaded once.
//
// Required:
// As for `ls_advantages`, for both results.
ls_status ls_step(const struct ls_device *device,
                  const struct ls_recipe *recipe,
                  const struct ls_rollouts *rollouts,
                  struct ls_credit **credit,
                  struct ls_output **output);

// Makes a credit from the caller's advantages, or from a minibatch's part of another credit's arrays; copies
// the arrays from host memory.
//
// Required:
// `views` is null or as long as its first field states, its arrays as long as stated; `out` as for
// `ls_advantages`.
ls_status ls_credit_new(const struct ls_credit_views *views, struct ls_credit **out);

// Writes one array of a credit: `advantage` (`[S]`, or `[N]` if `ls_recipe_per_token`), `returns`,
// `loss_mask` and `weights` (`[N]`), `keep` (`[S]`), `mean`, `std`, `counted`, `status` and `pivot` (`[G]`),
// `role_values` (`[P]`). `LS_STATUS_ABSENT` if the recipe does not make it.
//
// Required:
// `credit` is null or open; `name` is null or a 0-terminated string; `out` is null or points to an
// `ls_array`.
ls_status ls_credit_array(const struct ls_credit *credit, const char *name, struct ls_array *out);

// Writes at most `capacity` of a credit's arrays, and returns how many there are; 0 if `credit` is null.
//
// Required:
// `credit` is null or open; `out` has room for `capacity` entries, or `out` is null and `capacity` 0.
size_t ls_credit_arrays(const struct ls_credit *credit, struct ls_array *out, size_t capacity);

// Frees a credit; does nothing if it is null.
//
// Required:
// `credit` is null, or an open credit that is not in use.
void ls_credit_free(struct ls_credit *credit);

// Writes one array of a loss: `coef` (dL/dlogp, `[N]`), `loss` (`[1]`), `row_loss` (`[S]`), `token_loss`
// (`[N]`), `counts` (live tokens, sequences with a live token, sequences), `metrics` (`ls_metric_name_at`),
// `entropy_coef` (dL/dH, `[N]`), `entropy_loss` and `entropy` (`[1]`), `value_gradient` (dL/dV, `[N]`),
// `value_loss` (`[1]`), `value_row_loss` (`[S]`), `value_token_loss` (`[N]`), `value_clip_fraction` (`[1]`).
// `LS_STATUS_ABSENT` if the recipe does not make it or `outputs` did not ask for it.
//
// Required:
// As for `ls_credit_array`.
ls_status ls_output_array(const struct ls_output *output, const char *name, struct ls_array *out);

// Writes at most `capacity` of a loss's arrays, and returns how many there are; 0 if `output` is null.
//
// Required:
// As for `ls_credit_arrays`.
size_t ls_output_arrays(const struct ls_output *output, struct ls_array *out, size_t capacity);

// Frees a loss; does nothing if it is null.
//
// Required:
// `output` is null, or an open loss that is not in use.
void ls_output_free(struct ls_output *output);

// Makes totals of no rows, to merge others into.
//
// Required:
// `out` is null or points to a pointer, which is null after a failure. Free the totals with
// `ls_totals_free`.
ls_status ls_totals_new(struct ls_totals **out);

// Makes the totals of a loss. For parts to add up, the loss must have had the whole batch's `counts` as a
// column.
//
// Required:
// `output` is null or open; `out` as for `ls_totals_new`.
ls_status ls_totals_of(const struct ls_output *output, struct ls_totals **out);

// Reads totals from the bytes of `ls_totals_to_bytes`.
//
// Required:
// `bytes` is null or has `len` bytes; `out` as for `ls_totals_new`.
ls_status ls_totals_from_bytes(const uint8_t *bytes, size_t len, struct ls_totals **out);

// Writes the totals as bytes. Equal totals give equal bytes on every machine. `capacity` is at least
// `LS_TOTALS_BYTES`.
//
// Required:
// `totals` is null or open; `out` is null or has room for `capacity` bytes.
ls_status ls_totals_to_bytes(const struct ls_totals *totals, uint8_t *out, size_t capacity);

// Writes the totals as integers to sum over ranks element by element (`MPI_INT64_T`, `MPI_SUM`), and two
// numbers to reduce with the maximum (`MPI_DOUBLE`, `MPI_MAX`). `capacity` is at least `LS_TOTALS_LIMBS`.
//
// Required:
// `totals` is null or open; `limbs` is null or has room for `capacity` integers; `maxima` is null or has
// room for two numbers.
ls_status ls_totals_to_limbs(const struct ls_totals *totals, int64_t *limbs, size_t capacity, double *maxima);

// Makes the totals of all ranks from the reduced limbs and maxima. Equal, bit for bit, to merging them all
// with `ls_totals_merge`, for at most 2^31 ranks.
//
// Required:
// `limbs` is null or has `len` integers; `maxima` is null or has two numbers; `out` as for `ls_totals_new`.
ls_status ls_totals_from_limbs(const int64_t *limbs,
                               size_t len,
                               const double *maxima,
                               struct ls_totals **out);

// Adds the rows of `other` to `totals`.
//
// Required:
// Both are null or open; nobody else uses `totals`. They may be the same.
ls_status ls_totals_merge(struct ls_totals *totals, const struct ls_totals *other);

// Writes the loss over all rows, rounded once. `LS_STATUS_ABSENT` if a part was computed without its loss.
//
// Required:
// `totals` is null or open; `out` is null or points to a number.
ls_status ls_totals_loss(const struct ls_totals *totals, double *out);

// Writes the number of live tokens, of sequences with a live token, and of sequences, over all rows.
//
// Required:
// `totals` is null or open; `out` is null or has room for three numbers.
ls_status ls_totals_counts(const struct ls_totals *totals, uint64_t *out);

// Writes the metrics over all rows; `ls_metric_name_at` gives their names. `LS_STATUS_ABSENT` if a part was
// computed without metrics.
//
// Required:
// `totals` is null or open; `out` is null or has room for `capacity` numbers.
ls_status ls_totals_metrics(const struct ls_totals *totals, double *out, size_t capacity);

// Frees totals; does nothing if they are null.
//
// Required:
// `totals` is null, or open totals that are not in use.
void ls_totals_free(struct ls_totals *totals);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LOCKSTEP_H */
