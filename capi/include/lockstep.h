// Lockstep for C and C++: recipes of RL maths for LLM post-training, the same bits on every machine.
//
// Every function with a status checks pointers, lengths, offsets and values. What is refused is a status; the thread's last error has the
// message, the argument and the index. Handles are opaque, and freed by their own function. Texts and arrays that a function returns belong
// to the library. In the comments N is the number of tokens, S of sequences, G of groups.


#ifndef LOCKSTEP_H
#define LOCKSTEP_H

// Written by cbindgen from capi/src: do not edit.

#include <stddef.h>
#include <stdint.h>

// The version of this interface, raised by every change that a compiled program would notice. A column, a status or a function more is
// none: columns are appended, and structs say how large they are.
#define LS_ABI_VERSION 1

// The call `ls_advantages`.
#define LS_CALL_ADVANTAGES 1

// The call `ls_loss`.
#define LS_CALL_LOSS 2

// The loss, in all and per sequence.
#define LS_OUTPUT_LOSS 1

// Metrics; implies the loss.
#define LS_OUTPUT_METRICS 2

// The loss of each token; implies the loss.
#define LS_OUTPUT_TOKEN_LOSS 4

// Everything. Gradients come always; 0 is gradients alone, the fast path.
#define LS_OUTPUT_ALL 7

// Bytes of `ls_totals_to_bytes`.
#define LS_TOTALS_BYTES 4016

// Integers of `ls_totals_to_limbs`.
#define LS_TOTALS_LIMBS 999

// How a call ended.
enum ls_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It did what it says.
  LS_STATUS_OK = 0,
  // A pointer that must not be null is, or a pointer is not aligned for what it points to.
  LS_STATUS_POINTER = 1,
  // A length, offset or value is wrong; `ls_last_error_argument` and `ls_last_error_index` say where.
  LS_STATUS_ARGUMENT = 2,
  // Columns that the recipe reads are missing; the message names all of them.
  LS_STATUS_COLUMNS = 3,
  // A recipe that is not known, or cannot be read, or whose choices do not go together.
  LS_STATUS_RECIPE = 4,
  // A device that is not there, or that failed.
  LS_STATUS_DEVICE = 5,
  // A plan that cannot be made, or that met what it cannot take.
  LS_STATUS_PLAN = 6,
  // A name or number under which there is nothing.
  LS_STATUS_ABSENT = 7,
  // A fault of Lockstep's own, which was caught: please report it.
  LS_STATUS_PANIC = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ls_status ls_status;
#else
typedef int32_t ls_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Type of an array's elements.
enum ls_element
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // `uint8_t`, a flag.
  LS_ELEMENT_U8 = 0,
  // `uint32_t`, an index, offset or id.
  LS_ELEMENT_U32 = 1,
  // `uint64_t`, a count.
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

// Advantages and everything else that a loss needs of a batch.
typedef struct ls_credit ls_credit;

// Where a call or a plan runs. Any number of threads may use it at once.
typedef struct ls_device ls_device;

// Loss, gradients and metrics.
typedef struct ls_output ls_output;

// Launches over memory of a fixed size. Any number of threads may use it at once, each with a workspace of its own.
typedef struct ls_plan ls_plan;

// One choice for each stage from rewards to gradients. Any number of threads may use it at once.
typedef struct ls_recipe ls_recipe;

// What a rank or micro-batch knows of loss and metrics of the whole batch, exactly: merged in any order, the totals of any parts of a
// batch have the same loss and metrics, bit for bit.
typedef struct ls_totals ls_totals;

// A column of `ls_rollouts`, for bindings that make the struct from the list.
typedef struct ls_column {
  // Its name; as the other texts it stays for good.
  const char *name;
  // What it is, with its unit.
  const char *meaning;
  // Its length: `[N]` tokens, `[S]` sequences, `[G]` groups, `[S+1]` offsets…
  const char *shape;
  // Type of its elements.
  ls_element element;
  // First byte of its place in `ls_rollouts`.
  uint32_t offset;
} ls_column;

// What a plan is of.
typedef struct ls_plan_options {
  // `sizeof(ls_plan_options)`.
  uint32_t size;
  // `LS_CALL_ADVANTAGES`, `LS_CALL_LOSS`, or their sum.
  uint32_t calls;
  // The largest batch: N.
  uint64_t tokens;
  // S.
  uint64_t sequences;
  // G.
  uint64_t groups;
  // A sum of `LS_OUTPUT_…`.
  uint32_t outputs;
  // Not 0: every batch has this very size; 0: smaller ones come padded, offsets with their last value.
  uint32_t exact;
} ls_plan_options;

// A result in a plan's workspace.
typedef struct ls_slot {
  // Its name, that of the array of `ls_credit_array` or `ls_output_array`; `sums` and `maxima` are for `ls_metrics`.
  const char *name;
  // How many elements.
  size_t len;
  // First byte in the workspace.
  size_t offset;
  // Type of the elements.
  ls_element element;
} ls_slot;

// A call that a plan leaves to the host, with copies and waiting; such a plan cannot be captured.
typedef struct ls_host_stage {
  // The TOML key whose rule has no launch.
  const char *stage;
  // Bytes that are copied to the host and back at full capacity.
  size_t bytes;
  // `LS_CALL_ADVANTAGES` or `LS_CALL_LOSS`.
  uint32_t call;
} ls_host_stage;

// An array of the caller's: a null `data` is none.
typedef struct ls_span_u32 {
  // The first element.
  const uint32_t *data;
  // How many.
  size_t len;
} ls_span_u32;

// An array of the caller's: a null `data` is none.
typedef struct ls_span_u8 {
  // The first element.
  const uint8_t *data;
  // How many.
  size_t len;
} ls_span_u8;

// An array of the caller's: a null `data` is none.
typedef struct ls_span_f32 {
  // The first element.
  const float *data;
  // How many.
  size_t len;
} ls_span_f32;

// An array of the caller's: a null `data` is none.
typedef struct ls_span_f64 {
  // The first element.
  const double *data;
  // How many.
  size_t len;
} ls_span_f64;

// An array of the caller's: a null `data` is none.
typedef struct ls_span_u64 {
  // The first element.
  const uint64_t *data;
  // How many.
  size_t len;
} ls_span_u64;

// Columns of a batch; those that a recipe does not read may be left out: a null `data`. All zero but `size` is none.
typedef struct ls_rollouts {
  // `sizeof(ls_rollouts)`.
  uint32_t size;
  // 0.
  uint32_t reserved;
  // `[S+1]` sequence s holds tokens `cu_seqlens[s]..cu_seqlens[s+1]`
  struct ls_span_u32 cu_seqlens;
  // `[G+1]` group g holds sequences `cu_groups[g]..cu_groups[g+1]`: the responses to one prompt
  struct ls_span_u32 cu_groups;
  // `[N]` 0: the token takes no part (prompt, tool output, padding); absent: all do
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
  // `[N]` log-probability under the newest policy, where logp_old is an older one that made the data (ReMix)
  struct ls_span_f32 logp_latest;
  // `[N]` log-probability under the policy before the last update (ReMix's convex KL)
  struct ls_span_f32 logp_previous;
  // `[N]` divergence of the policy from logp_old's at the token, over the top k of the vocabulary, at least 0 (DPPO)
  struct ls_span_f32 divergence;
  // `[N]` log-ratio made elsewhere, for ratio.level given
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
  // `[S]` weight of each response in its group's baseline (VCPO): ops::vcpo_weights makes them
  struct ls_span_f32 baseline_weights;
  // `[S]` weight of each response in the values of its prefix tree (TEMPO); absent: 1
  struct ls_span_f32 outcome_weights;
  // `[S]` not 0: the answer is right, its reasoning flawed (FAPO)
  struct ls_span_u8 flawed;
  // `[G]` position in its group of the response that the others were compared with (BRPO)
  struct ls_span_u32 reference;
  // `[S]` class of the answer: ops::reward::majority makes them (EVOL-RL)
  struct ls_span_u32 answer_class;
  // `[Σn²]` similarity of every two responses of a group, row by row, group after group (EVOL-RL)
  struct ls_span_f32 similarity;
  // `[S]` role that played the response (SPIRAL)
  struct ls_span_u32 roles;
  // `[P]` moving average of each role's reward, as the last batch left it; absent: 0, as before the first
  struct ls_span_f64 role_values;
  // `[N]` value of each token by the critic that is trained
  struct ls_span_f32 values;
  // `[N]` value of each token when the update began
  struct ls_span_f32 values_old;
  // `[S]` not 0: the response came to its own end
  struct ls_span_u8 terminated;
  // `[S]` not 0: the response was cut and would have gone on
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
  // `[1]` seed of what is chosen at random: another one for every call
  struct ls_span_u64 seed;
  // `[1]` number of the training step, from 0
  struct ls_span_u64 step;
  // `[S]` how hard the response's prompt is, 0 to 1 (ROLL's weights)
  struct ls_span_f32 difficulty;
} ls_rollouts;

// What a loss reads of a credit: in the host's memory for `ls_credit_new`, in the device's for a plan of the loss alone.
typedef struct ls_credit_views {
  // `sizeof(ls_credit_views)`.
  uint32_t size;
  // Not 0: one advantage per token; 0: one per sequence.
  uint32_t per_token;
  // `[S]`, or `[N]` per token.
  struct ls_span_f32 advantage;
  // `[N]`, what filter and rejection left of the loss mask; none: all of it.
  struct ls_span_u8 loss_mask;
  // `[N]`, weights of the rollout correction; none: 1.
  struct ls_span_f32 weights;
  // `[N]`, what a critic learns; none: the estimator has none.
  struct ls_span_f32 returns;
} ls_credit_views;

// A column that a recipe reads. The texts stay for good.
typedef struct ls_need {
  // The column.
  const char *column;
  // The stage that wants it, by its TOML key.
  const char *stage;
  // Another column that does as well, or null.
  const char *other;
  // `LS_CALL_ADVANTAGES` or `LS_CALL_LOSS`.
  uint32_t call;
  // 1: the call is refused without it.
  uint32_t required;
} ls_need;

// What a recipe asks of the training loop. The texts stay for good.
typedef struct ls_duty {
  // Its name.
  const char *name;
  // What the loop must do.
  const char *meaning;
} ls_duty;

// An array of a result, for as long as the result is there and not written anew.
typedef struct ls_array {
  // Its name, which stays for good.
  const char *name;
  // The first element.
  const void *data;
  // How many.
  size_t len;
  // Type of the elements.
  ls_element element;
} ls_array;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// `LS_ABI_VERSION` of the library, to be compared with that of the header.
uint32_t ls_abi_version(void);

// The version of Lockstep: `0.1.0`.
const char *ls_version(void);

// Column number `number`, from 0 on. `LS_STATUS_ABSENT` behind the last.
//
// Required:
// `out` is null or that of an `ls_column`.
ls_status ls_column_at(size_t number, struct ls_column *out);

// Opens a device by name: `cpu`, `cpu:avx2`, `cuda`, `cuda:1`, `rocm:0`. `threads` is for `cpu`; 0: one for each core. A GPU's driver
// library is looked for now; nothing of a vendor is needed to build or link. Which device is chosen changes speed, never bits.
//
// Required:
// `name` is null or ends with a 0; `out` is null or that of a pointer, which is null after a failure. `ls_device_free` frees it.
ls_status ls_device_open(const char *name,
                         size_t threads,
                         struct ls_device **out);

// What it is, for a log, for as long as the device is there; null for a null.
//
// Required:
// `device` is null or an open device.
const char *ls_device_describe(const struct ls_device *device);

// Frees a device; null is nothing.
//
// Required:
// `device` is null, or an open device that nothing uses.
void ls_device_free(struct ls_device *device);

// The message of the thread's last call that failed, until its next one that fails; empty before.
const char *ls_last_error(void);

// The name of the argument or column that it refused; null where it was none's fault.
const char *ls_last_error_argument(void);

// The index in that argument; -1 where it is no entry of an array.
int64_t ls_last_error_index(void);

// Makes a plan; it keeps a copy of the recipe.
//
// Required:
// `recipe` is null or open; `options` is null or as long as its first field says; `out` is null or that of a pointer, which is null after
// a failure. `ls_plan_free` frees it.
ls_status ls_plan_new(const struct ls_recipe *recipe,
                      const struct ls_plan_options *options,
                      struct ls_plan **out);

// Frees a plan; null is nothing.
//
// Required:
// `plan` is null, or an open plan that nothing uses.
void ls_plan_free(struct ls_plan *plan);

// Bytes that the workspace must have; 0 for a null. A GPU's is aligned to 256 bytes, a CPU's to 8; it is zeroed once.
//
// Required:
// `plan` is null or open.
size_t ls_plan_workspace_bytes(const struct ls_plan *plan);

// Where the result of a name lies in the workspace. `LS_STATUS_ABSENT` where the plan makes none.
//
// Required:
// `plan` is null or open; `name` is null or ends with a 0; `out` is null or that of an `ls_slot`.
ls_status ls_plan_slot(const struct ls_plan *plan, const char *name, struct ls_slot *out);

// Writes where the results lie, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// `plan` is null or open; `out` has room for `capacity` entries, or both are null and 0.
size_t ls_plan_slots(const struct ls_plan *plan, struct ls_slot *out, size_t capacity);

// Writes the names of the ops that are launched, in order, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// As for `ls_plan_slots`.
size_t ls_plan_launches(const struct ls_plan *plan,
                        const char **out,
                        size_t capacity);

// Writes the calls that are left to the host, at most `capacity` of them, and returns how many there are; 0 where the plan is launches
// alone, and for a null.
//
// Required:
// As for `ls_plan_slots`.
size_t ls_plan_host_stages(const struct ls_plan *plan,
                           struct ls_host_stage *out,
                           size_t capacity);

// Puts the plan into a stream (`CUstream`, `cudaStream_t`, `hipStream_t`; null: the default one; a CPU does not look and runs it at once).
// Columns, credit and workspace are the device's memory. No allocation, no copy, no waiting, so that a graph can capture it, unless
// `ls_plan_host_stages` says otherwise. `credit` is for a plan of the loss alone, else null.
//
// Lengths are checked now, against the plan's; values are when `ls_plan_alarms` asks. Offsets are believed: `ls_plan_run` looks at them.
//
// Required:
// Until the stream has run it: columns are initialised and written by nobody, the workspace is used by nobody else and was zeroed once;
// offsets start at 0, never decrease and end at most at the capacity. The stream is the device's.
ls_status ls_plan_enqueue(const struct ls_plan *plan,
                          const struct ls_device *device,
                          void *stream,
                          const struct ls_rollouts *rollouts,
                          const struct ls_credit_views *credit,
                          void *workspace,
                          size_t workspace_bytes);

// Waits for the stream and asks whether a stage met a bad value: a log-probability above 0, a NaN, a group of one where that is an error.
//
// Required:
// `workspace` is the one of the last `ls_plan_enqueue` of this plan, still there.
ls_status ls_plan_alarms(const struct ls_plan *plan,
                         const struct ls_device *device,
                         void *stream,
                         void *workspace,
                         size_t workspace_bytes);

// `ls_plan_enqueue` with everything checked: it looks at the offsets, waits, asks the alarms, and says the column and index of a bad
// value.
//
// Required:
// As for `ls_plan_enqueue`; the offsets may be wrong.
ls_status ls_plan_run(const struct ls_plan *plan,
                      const struct ls_device *device,
                      void *stream,
                      const struct ls_rollouts *rollouts,
                      const struct ls_credit_views *credit,
                      void *workspace,
                      size_t workspace_bytes);

// Opens a recipe: by name (`grpo`, `dapo`, `verl`; `ls_recipe_name_at` lists them), or from TOML, which is a text with a `=`, a `[` or a
// line's end.
//
// Required:
// `source` is null or ends with a 0; `out` is null or that of a pointer, which is null after a failure. `ls_recipe_free` frees it.
ls_status ls_recipe_open(const char *source,
                         struct ls_recipe **out);

// Frees a recipe; null is nothing. Plans of it stay.
//
// Required:
// `recipe` is null, or an open recipe that nothing uses.
void ls_recipe_free(struct ls_recipe *recipe);

// Its name, for as long as the recipe is there; null for a null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_name(const struct ls_recipe *recipe);

// Every choice as TOML, for as long as the recipe is there; null for a null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_toml(const struct ls_recipe *recipe);

// What it reads, what it asks of the training loop, and its choices as TOML, for as long as the recipe is there; null for a null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_explain(const struct ls_recipe *recipe);

// 1: it makes one advantage per token; 0: one per sequence, or a null.
//
// Required:
// `recipe` is null or an open recipe.
uint32_t ls_recipe_per_token(const struct ls_recipe *recipe);

// Writes the columns that it reads, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// `recipe` is null or an open recipe; `out` has room for `capacity` entries, or both are null and 0.
size_t ls_recipe_needs(const struct ls_recipe *recipe, struct ls_need *out, size_t capacity);

// Writes what the training loop must do, at most `capacity` duties, and returns how many there are; 0 for a null.
//
// Required:
// As for `ls_recipe_needs`.
size_t ls_recipe_duties(const struct ls_recipe *recipe,
                        struct ls_duty *out,
                        size_t capacity);

// The name of recipe number `number`, from 0 on; null behind the last. It stays for good.
const char *ls_recipe_name_at(size_t number);

// The name of number `number` of the array `metrics`, from 0 on; null behind the last. It stays for good.
const char *ls_metric_name_at(size_t number);

// Metrics from the results `sums` and `maxima` of a plan, copied to the host, with the live tokens (the first of `counts`); written to
// `out`, whose names `ls_metric_name_at` gives.
//
// Required:
// The arrays are null or as long as said, `maxima` two.
ls_status ls_metrics(uint64_t tokens,
                     const double *sums,
                     size_t sums_len,
                     const float *maxima,
                     double *out,
                     size_t capacity);

// Advantages and all else that the loss needs of a batch in the host's memory: once for each batch.
//
// Required:
// Handles are null or open; every column is as long as said; `out` is null or that of a pointer, which is null after a failure.
// `ls_credit_free` frees it.
ls_status ls_advantages(const struct ls_device *device,
                        const struct ls_recipe *recipe,
                        const struct ls_rollouts *rollouts,
                        struct ls_credit **out);

// Loss, gradients and, as `outputs` (a sum of `LS_OUTPUT_…`) says, more, of a batch or a minibatch in the host's memory with its credit:
// for each update, with new `logp`. `coef` is dL/dlogp.
//
// Required:
// As for `ls_advantages`. `ls_output_free` frees the result.
ls_status ls_loss(const struct ls_device *device,
                  const struct ls_recipe *recipe,
                  const struct ls_rollouts *rollouts,
                  const struct ls_credit *credit,
                  uint32_t outputs,
                  struct ls_output **out);

// As `ls_loss`, into the result of an earlier call, whose memory is used again; arrays that were read from it are gone. After a failure
// it holds nothing that is of use, and can be used again.
//
// Required:
// As for `ls_loss`; `out` is null or open, and nobody else uses it.
ls_status ls_loss_into(const struct ls_device *device,
                       const struct ls_recipe *recipe,
                       const struct ls_rollouts *rollouts,
                       const struct ls_credit *credit,
                       uint32_t outputs,
                       struct ls_output *out);

// Both calls with all results, for who updates once a batch; on a GPU one upload of the columns and one download of the results.
//
// Required:
// As for `ls_advantages`, twice.
ls_status ls_step(const struct ls_device *device,
                  const struct ls_recipe *recipe,
                  const struct ls_rollouts *rollouts,
                  struct ls_credit **credit,
                  struct ls_output **output);

// A credit of one's own advantages, or of a minibatch's part of another's arrays, copied from the host's memory.
//
// Required:
// `views` is null or as long as its first field says, its arrays as long as said; `out` as for `ls_advantages`.
ls_status ls_credit_new(const struct ls_credit_views *views,
                        struct ls_credit **out);

// An array of a credit: `advantage` (`[S]`, or `[N]` where `ls_recipe_per_token`), `returns`, `loss_mask` and `weights` (`[N]`), `keep`
// (`[S]`), `mean`, `std`, `counted`, `status` and `pivot` (`[G]`), `role_values` (`[P]`). `LS_STATUS_ABSENT` where the recipe makes none.
//
// Required:
// `credit` is null or open; `name` is null or ends with a 0; `out` is null or that of an `ls_array`.
ls_status ls_credit_array(const struct ls_credit *credit,
                          const char *name,
                          struct ls_array *out);

// Writes the arrays that a credit has, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// `credit` is null or open; `out` has room for `capacity` entries, or both are null and 0.
size_t ls_credit_arrays(const struct ls_credit *credit,
                        struct ls_array *out,
                        size_t capacity);

// Frees a credit; null is nothing.
//
// Required:
// `credit` is null, or an open credit that nothing uses.
void ls_credit_free(struct ls_credit *credit);

// An array of a loss: `coef` (dL/dlogp, `[N]`), `loss` (`[1]`), `row_loss` (`[S]`), `token_loss` (`[N]`), `counts` (live tokens, sequences
// with a live token, sequences), `metrics` (`ls_metric_name_at`), `entropy_coef` (dL/dH, `[N]`), `entropy_loss` and `entropy` (`[1]`),
// `value_gradient` (dL/dV, `[N]`), `value_loss` (`[1]`), `value_row_loss` (`[S]`), `value_token_loss` (`[N]`), `value_clip_fraction`
// (`[1]`). `LS_STATUS_ABSENT` where the recipe makes none, or nobody asked for it.
//
// Required:
// As for `ls_credit_array`.
ls_status ls_output_array(const struct ls_output *output,
                          const char *name,
                          struct ls_array *out);

// Writes the arrays that a loss has, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// As for `ls_credit_arrays`.
size_t ls_output_arrays(const struct ls_output *output,
                        struct ls_array *out,
                        size_t capacity);

// Frees a loss; null is nothing.
//
// Required:
// `output` is null, or an open loss that nothing uses.
void ls_output_free(struct ls_output *output);

// Totals of no rows, to merge others into.
//
// Required:
// `out` is null or that of a pointer. `ls_totals_free` frees it.
ls_status ls_totals_new(struct ls_totals **out);

// The totals of a loss. `counts` of the whole batch was its column, so that the parts add up.
//
// Required:
// `output` is null or open; `out` as for `ls_totals_new`.
ls_status ls_totals_of(const struct ls_output *output, struct ls_totals **out);

// The totals that these bytes are.
//
// Required:
// `bytes` is null or has `len` bytes; `out` as for `ls_totals_new`.
ls_status ls_totals_from_bytes(const uint8_t *bytes, size_t len, struct ls_totals **out);

// Writes the totals as bytes, the same for equal totals on every machine. `capacity` is at least `LS_TOTALS_BYTES`.
//
// Required:
// `totals` is null or open; `out` is null or has room for `capacity` bytes.
ls_status ls_totals_to_bytes(const struct ls_totals *totals,
                             uint8_t *out,
                             size_t capacity);

// Writes the totals as integers that the ranks add element by element (`MPI_INT64_T`, `MPI_SUM`), and two numbers of which they take the
// maximum (`MPI_DOUBLE`, `MPI_MAX`). `capacity` is at least `LS_TOTALS_LIMBS`.
//
// Required:
// `totals` is null or open; `limbs` is null or has room for `capacity` integers; `maxima` is null or that of two numbers.
ls_status ls_totals_to_limbs(const struct ls_totals *totals,
                             int64_t *limbs,
                             size_t capacity,
                             double *maxima);

// What the ranks know together, from the sums of their limbs and the maxima; equal to `ls_totals_merge` of all, bit for bit, for at most
// 2^31 ranks.
//
// Required:
// `limbs` is null or has `len` integers; `maxima` is null or that of two numbers; `out` as for `ls_totals_new`.
ls_status ls_totals_from_limbs(const int64_t *limbs,
                               size_t len,
                               const double *maxima,
                               struct ls_totals **out);

// Adds the rows of `other` to `totals`.
//
// Required:
// Both are null or open; nobody else uses `totals`. They may be the same.
ls_status ls_totals_merge(struct ls_totals *totals, const struct ls_totals *other);

// The loss over all rows, rounded once. `LS_STATUS_ABSENT` if a part was run without.
//
// Required:
// `totals` is null or open; `out` is null or that of a number.
ls_status ls_totals_loss(const struct ls_totals *totals, double *out);

// Live tokens, sequences with a live token, and sequences of all rows.
//
// Required:
// `totals` is null or open; `out` is null or that of three numbers.
ls_status ls_totals_counts(const struct ls_totals *totals, uint64_t *out);

// The metrics over all rows, whose names `ls_metric_name_at` gives. `LS_STATUS_ABSENT` if a part was run without.
//
// Required:
// `totals` is null or open; `out` is null or has room for `capacity` numbers.
ls_status ls_totals_metrics(const struct ls_totals *totals,
                            double *out,
                            size_t capacity);

// Frees totals; null is nothing.
//
// Required:
// `totals` is null, or open totals that nothing uses.
void ls_totals_free(struct ls_totals *totals);

// The message of the thread's last call that failed, until its next one that fails; empty before.
const char *ls_last_error(void);

// The name of the argument or column that it refused; null where it was none's fault.
const char *ls_last_error_argument(void);

// The index in that argument; -1 where it is no entry of an array.
int64_t ls_last_error_index(void);

// Column number `number`, from 0 on. `LS_STATUS_ABSENT` behind the last.
//
// Required:
// `out` is null or that of an `ls_column`.
ls_status ls_column_at(size_t number, struct ls_column *out);

// Opens a device by name: `cpu`, `cpu:avx2`, `cuda`, `cuda:1`, `rocm:0`. `threads` is for `cpu`; 0: one for each core. A GPU's driver
// library is looked for now; nothing of a vendor is needed to build or link. Which device is chosen changes speed, never bits.
//
// Required:
// `name` is null or ends with a 0; `out` is null or that of a pointer, which is null after a failure. `ls_device_free` frees it.
ls_status ls_device_open(const char *name,
                         size_t threads,
                         struct ls_device **out);

// What it is, for a log, for as long as the device is there; null for a null.
//
// Required:
// `device` is null or an open device.
const char *ls_device_describe(const struct ls_device *device);

// Frees a device; null is nothing.
//
// Required:
// `device` is null, or an open device that nothing uses.
void ls_device_free(struct ls_device *device);

// Opens a recipe: by name (`grpo`, `dapo`, `verl`; `ls_recipe_name_at` lists them), or from TOML, which is a text with a `=`, a `[` or a
// line's end.
//
// Required:
// `source` is null or ends with a 0; `out` is null or that of a pointer, which is null after a failure. `ls_recipe_free` frees it.
ls_status ls_recipe_open(const char *source,
                         struct ls_recipe **out);

// Frees a recipe; null is nothing. Plans of it stay.
//
// Required:
// `recipe` is null, or an open recipe that nothing uses.
void ls_recipe_free(struct ls_recipe *recipe);

// Its name, for as long as the recipe is there; null for a null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_name(const struct ls_recipe *recipe);

// Every choice as TOML, for as long as the recipe is there; null for a null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_toml(const struct ls_recipe *recipe);

// What it reads, what it asks of the training loop, and its choices as TOML, for as long as the recipe is there; null for a null.
//
// Required:
// `recipe` is null or an open recipe.
const char *ls_recipe_explain(const struct ls_recipe *recipe);

// 1: it makes one advantage per token; 0: one per sequence, or a null.
//
// Required:
// `recipe` is null or an open recipe.
uint32_t ls_recipe_per_token(const struct ls_recipe *recipe);

// Writes the columns that it reads, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// `recipe` is null or an open recipe; `out` has room for `capacity` entries, or both are null and 0.
size_t ls_recipe_needs(const struct ls_recipe *recipe, struct ls_need *out, size_t capacity);

// Writes what the training loop must do, at most `capacity` duties, and returns how many there are; 0 for a null.
//
// Required:
// As for `ls_recipe_needs`.
size_t ls_recipe_duties(const struct ls_recipe *recipe,
                        struct ls_duty *out,
                        size_t capacity);

// The name of recipe number `number`, from 0 on; null behind the last. It stays for good.
const char *ls_recipe_name_at(size_t number);

// The name of number `number` of the array `metrics`, from 0 on; null behind the last. It stays for good.
const char *ls_metric_name_at(size_t number);

// Metrics from the results `sums` and `maxima` of a plan, copied to the host, with the live tokens (the first of `counts`); written to
// `out`, whose names `ls_metric_name_at` gives.
//
// Required:
// The arrays are null or as long as said, `maxima` two.
ls_status ls_metrics(uint64_t tokens,
                     const double *sums,
                     size_t sums_len,
                     const float *maxima,
                     double *out,
                     size_t capacity);

// Advantages and all else that the loss needs of a batch in the host's memory: once for each batch.
//
// Required:
// Handles are null or open; every column is as long as said; `out` is null or that of a pointer, which is null after a failure.
// `ls_credit_free` frees it.
ls_status ls_advantages(const struct ls_device *device,
                        const struct ls_recipe *recipe,
                        const struct ls_rollouts *rollouts,
                        struct ls_credit **out);

// Loss, gradients and, as `outputs` (a sum of `LS_OUTPUT_…`) says, more, of a batch or a minibatch in the host's memory with its credit:
// for each update, with new `logp`. `coef` is dL/dlogp.
//
// Required:
// As for `ls_advantages`. `ls_output_free` frees the result.
ls_status ls_loss(const struct ls_device *device,
                  const struct ls_recipe *recipe,
                  const struct ls_rollouts *rollouts,
                  const struct ls_credit *credit,
                  uint32_t outputs,
                  struct ls_output **out);

// As `ls_loss`, into the result of an earlier call, whose memory is used again; arrays that were read from it are gone. After a failure
// it holds nothing that is of use, and can be used again.
//
// Required:
// As for `ls_loss`; `out` is null or open, and nobody else uses it.
ls_status ls_loss_into(const struct ls_device *device,
                       const struct ls_recipe *recipe,
                       const struct ls_rollouts *rollouts,
                       const struct ls_credit *credit,
                       uint32_t outputs,
                       struct ls_output *out);

// Both calls with all results, for who updates once a batch; on a GPU one upload of the columns and one download of the results.
//
// Required:
// As for `ls_advantages`, twice.
ls_status ls_step(const struct ls_device *device,
                  const struct ls_recipe *recipe,
                  const struct ls_rollouts *rollouts,
                  struct ls_credit **credit,
                  struct ls_output **output);

// A credit of one's own advantages, or of a minibatch's part of another's arrays, copied from the host's memory.
//
// Required:
// `views` is null or as long as its first field says, its arrays as long as said; `out` as for `ls_advantages`.
ls_status ls_credit_new(const struct ls_credit_views *views,
                        struct ls_credit **out);

// An array of a credit: `advantage` (`[S]`, or `[N]` where `ls_recipe_per_token`), `returns`, `loss_mask` and `weights` (`[N]`), `keep`
// (`[S]`), `mean`, `std`, `counted`, `status` and `pivot` (`[G]`), `role_values` (`[P]`). `LS_STATUS_ABSENT` where the recipe makes none.
//
// Required:
// `credit` is null or open; `name` is null or ends with a 0; `out` is null or that of an `ls_array`.
ls_status ls_credit_array(const struct ls_credit *credit,
                          const char *name,
                          struct ls_array *out);

// Writes the arrays that a credit has, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// `credit` is null or open; `out` has room for `capacity` entries, or both are null and 0.
size_t ls_credit_arrays(const struct ls_credit *credit,
                        struct ls_array *out,
                        size_t capacity);

// Frees a credit; null is nothing.
//
// Required:
// `credit` is null, or an open credit that nothing uses.
void ls_credit_free(struct ls_credit *credit);

// An array of a loss: `coef` (dL/dlogp, `[N]`), `loss` (`[1]`), `row_loss` (`[S]`), `token_loss` (`[N]`), `counts` (live tokens, sequences
// with a live token, sequences), `metrics` (`ls_metric_name_at`), `entropy_coef` (dL/dH, `[N]`), `entropy_loss` and `entropy` (`[1]`),
// `value_gradient` (dL/dV, `[N]`), `value_loss` (`[1]`), `value_row_loss` (`[S]`), `value_token_loss` (`[N]`), `value_clip_fraction`
// (`[1]`). `LS_STATUS_ABSENT` where the recipe makes none, or nobody asked for it.
//
// Required:
// As for `ls_credit_array`.
ls_status ls_output_array(const struct ls_output *output,
                          const char *name,
                          struct ls_array *out);

// Writes the arrays that a loss has, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// As for `ls_credit_arrays`.
size_t ls_output_arrays(const struct ls_output *output,
                        struct ls_array *out,
                        size_t capacity);

// Frees a loss; null is nothing.
//
// Required:
// `output` is null, or an open loss that nothing uses.
void ls_output_free(struct ls_output *output);

// Makes a plan; it keeps a copy of the recipe.
//
// Required:
// `recipe` is null or open; `options` is null or as long as its first field says; `out` is null or that of a pointer, which is null after
// a failure. `ls_plan_free` frees it.
ls_status ls_plan_new(const struct ls_recipe *recipe,
                      const struct ls_plan_options *options,
                      struct ls_plan **out);

// Frees a plan; null is nothing.
//
// Required:
// `plan` is null, or an open plan that nothing uses.
void ls_plan_free(struct ls_plan *plan);

// Bytes that the workspace must have; 0 for a null. A GPU's is aligned to 256 bytes, a CPU's to 8; it is zeroed once.
//
// Required:
// `plan` is null or open.
size_t ls_plan_workspace_bytes(const struct ls_plan *plan);

// Where the result of a name lies in the workspace. `LS_STATUS_ABSENT` where the plan makes none.
//
// Required:
// `plan` is null or open; `name` is null or ends with a 0; `out` is null or that of an `ls_slot`.
ls_status ls_plan_slot(const struct ls_plan *plan, const char *name, struct ls_slot *out);

// Writes where the results lie, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// `plan` is null or open; `out` has room for `capacity` entries, or both are null and 0.
size_t ls_plan_slots(const struct ls_plan *plan, struct ls_slot *out, size_t capacity);

// Writes the names of the ops that are launched, in order, at most `capacity` of them, and returns how many there are; 0 for a null.
//
// Required:
// As for `ls_plan_slots`.
size_t ls_plan_launches(const struct ls_plan *plan,
                        const char **out,
                        size_t capacity);

// Writes the calls that are left to the host, at most `capacity` of them, and returns how many there are; 0 where the plan is launches
// alone, and for a null.
//
// Required:
// As for `ls_plan_slots`.
size_t ls_plan_host_stages(const struct ls_plan *plan,
                           struct ls_host_stage *out,
                           size_t capacity);

// Puts the plan into a stream (`CUstream`, `cudaStream_t`, `hipStream_t`; null: the default one; a CPU does not look and runs it at once).
// Columns, credit and workspace are the device's memory. No allocation, no copy, no waiting, so that a graph can capture it, unless
// `ls_plan_host_stages` says otherwise. `credit` is for a plan of the loss alone, else null.
//
// Lengths are checked now, against the plan's; values are when `ls_plan_alarms` asks. Offsets are believed: `ls_plan_run` looks at them.
//
// Required:
// Until the stream has run it: columns are initialised and written by nobody, the workspace is used by nobody else and was zeroed once;
// offsets start at 0, never decrease and end at most at the capacity. The stream is the device's.
ls_status ls_plan_enqueue(const struct ls_plan *plan,
                          const struct ls_device *device,
                          void *stream,
                          const struct ls_rollouts *rollouts,
                          const struct ls_credit_views *credit,
                          void *workspace,
                          size_t workspace_bytes);

// Waits for the stream and asks whether a stage met a bad value: a log-probability above 0, a NaN, a group of one where that is an error.
//
// Required:
// `workspace` is the one of the last `ls_plan_enqueue` of this plan, still there.
ls_status ls_plan_alarms(const struct ls_plan *plan,
                         const struct ls_device *device,
                         void *stream,
                         void *workspace,
                         size_t workspace_bytes);

// `ls_plan_enqueue` with everything checked: it looks at the offsets, waits, asks the alarms, and says the column and index of a bad
// value.
//
// Required:
// As for `ls_plan_enqueue`; the offsets may be wrong.
ls_status ls_plan_run(const struct ls_plan *plan,
                      const struct ls_device *device,
                      void *stream,
                      const struct ls_rollouts *rollouts,
                      const struct ls_credit_views *credit,
                      void *workspace,
                      size_t workspace_bytes);

// Totals of no rows, to merge others into.
//
// Required:
// `out` is null or that of a pointer. `ls_totals_free` frees it.
ls_status ls_totals_new(struct ls_totals **out);

// The totals of a loss. `counts` of the whole batch was its column, so that the parts add up.
//
// Required:
// `output` is null or open; `out` as for `ls_totals_new`.
ls_status ls_totals_of(const struct ls_output *output, struct ls_totals **out);

// The totals that these bytes are.
//
// Required:
// `bytes` is null or has `len` bytes; `out` as for `ls_totals_new`.
ls_status ls_totals_from_bytes(const uint8_t *bytes, size_t len, struct ls_totals **out);

// Writes the totals as bytes, the same for equal totals on every machine. `capacity` is at least `LS_TOTALS_BYTES`.
//
// Required:
// `totals` is null or open; `out` is null or has room for `capacity` bytes.
ls_status ls_totals_to_bytes(const struct ls_totals *totals,
                             uint8_t *out,
                             size_t capacity);

// Writes the totals as integers that the ranks add element by element (`MPI_INT64_T`, `MPI_SUM`), and two numbers of which they take the
// maximum (`MPI_DOUBLE`, `MPI_MAX`). `capacity` is at least `LS_TOTALS_LIMBS`.
//
// Required:
// `totals` is null or open; `limbs` is null or has room for `capacity` integers; `maxima` is null or that of two numbers.
ls_status ls_totals_to_limbs(const struct ls_totals *totals,
                             int64_t *limbs,
                             size_t capacity,
                             double *maxima);

// What the ranks know together, from the sums of their limbs and the maxima; equal to `ls_totals_merge` of all, bit for bit, for at most
// 2^31 ranks.
//
// Required:
// `limbs` is null or has `len` integers; `maxima` is null or that of two numbers; `out` as for `ls_totals_new`.
ls_status ls_totals_from_limbs(const int64_t *limbs,
                               size_t len,
                               const double *maxima,
                               struct ls_totals **out);

// Adds the rows of `other` to `totals`.
//
// Required:
// Both are null or open; nobody else uses `totals`. They may be the same.
ls_status ls_totals_merge(struct ls_totals *totals, const struct ls_totals *other);

// The loss over all rows, rounded once. `LS_STATUS_ABSENT` if a part was run without.
//
// Required:
// `totals` is null or open; `out` is null or that of a number.
ls_status ls_totals_loss(const struct ls_totals *totals, double *out);

// Live tokens, sequences with a live token, and sequences of all rows.
//
// Required:
// `totals` is null or open; `out` is null or that of three numbers.
ls_status ls_totals_counts(const struct ls_totals *totals, uint64_t *out);

// The metrics over all rows, whose names `ls_metric_name_at` gives. `LS_STATUS_ABSENT` if a part was run without.
//
// Required:
// `totals` is null or open; `out` is null or has room for `capacity` numbers.
ls_status ls_totals_metrics(const struct ls_totals *totals,
                            double *out,
                            size_t capacity);

// Frees totals; null is nothing.
//
// Required:
// `totals` is null, or open totals that nothing uses.
void ls_totals_free(struct ls_totals *totals);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LOCKSTEP_H */
