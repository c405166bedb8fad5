// Checks every part of lockstep.hpp against another route to the same result.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lockstep.hpp"

static void must(bool holds, const char *what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

template <class T>
static bool same(lockstep::span<const T> one, lockstep::span<const T> other) {
    return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(T)) == 0;
}

template <class Call>
static void throws(ls_status status, const char *argument, std::int64_t index, Call call) {
    try {
        call();
    } catch (const lockstep::error &error) {
        must(error.status() == status && error.argument() == argument && error.index() == index, error.what());
        return;
    }
    must(false, "nothing was thrown");
}

int main() {
    const std::array<std::uint32_t, 5> cu_seqlens{0, 3, 5, 7, 10};
    const std::vector<std::uint32_t> cu_groups{0, 2, 4};
    const std::vector<float> rewards{1, 0, 0, 1};
    std::vector<float> logp{-0.5f, -1.0f, -0.25f, -2.0f, -0.375f, -0.875f, -1.125f, -0.5f, -0.625f, -0.125f};
    const std::vector<float> logp_old = logp;
    logp[3] = -1.5f;
    lockstep::rollouts rollouts;
    rollouts.cu_seqlens = lockstep::view(cu_seqlens);
    rollouts.cu_groups = lockstep::view(cu_groups);
    rollouts.rewards = lockstep::view(rewards);
    rollouts.logp_old = lockstep::view(logp_old);
    rollouts.logp = lockstep::view(logp.data(), logp.size());

    const lockstep::device device("cpu", 2);
    const lockstep::recipe recipe("name = \"mine\"\nextends = \"dapo\"\n");
    must(device.describe().find("2 threads") != std::string::npos, "describe");
    must(recipe.name() == "mine" && !recipe.per_token() && recipe.duties().empty(), "recipe");
    must(std::strcmp(lockstep::recipe("remax").duties().at(0).name, "greedy_response") == 0, "duties");
    must(lockstep::recipe("remax").explain().find("asks of the training loop") != std::string::npos, "explain");
    must(lockstep::recipe(recipe.toml()).toml() == recipe.toml(), "toml");
    must(recipe.needs().size() >= 5 && lockstep::names().size() > 100, "lists");
    must(lockstep::metric_names().at(0) == "tokens" && lockstep::columns().size() > 40, "names of metrics, columns");
    must(lockstep::same_abi() && lockstep::version().find('.') != std::string::npos, "versions");

    const auto both = recipe.step(device, rollouts);
    const auto credit = recipe.advantages(device, rollouts);
    const auto once = recipe.loss(device, rollouts, credit);
    lockstep::output twice;
    recipe.loss(device, rollouts, credit, twice, 0);
    must(twice.metrics().empty() && same(once.coef(), twice.coef()), "gradients alone");
    recipe.loss(device, rollouts, credit, twice);
    must(same(once.coef(), both.second.coef()) && once.loss() == twice.loss() && same(once.metrics(), twice.metrics()), "loss");
    must(same(credit.advantage(), both.first.advantage()) && credit.arrays().size() >= 4 && once.arrays().size() == 6, "arrays");
    must(credit.array<float>("returns").empty(), "an array that is not there");

    // Two empty responses: columns without entries are not absent.
    const std::array<std::uint32_t, 3> nothing{0, 0, 0};
    const std::array<std::uint32_t, 2> one_group{0, 2};
    const std::vector<float> two{1, 0}, none;
    lockstep::rollouts empty;
    empty.cu_seqlens = lockstep::view(nothing);
    empty.cu_groups = lockstep::view(one_group);
    empty.rewards = lockstep::view(two);
    empty.logp = empty.logp_old = lockstep::view(none);
    must(recipe.step(device, empty).second.coef().empty(), "empty responses");

    // A credit built from the caller's arrays.
    lockstep::credit_views views;
    const auto own = credit.advantage(), weights = credit.array<float>("weights");
    const auto mask = credit.array<std::uint8_t>("loss_mask");
    views.advantage = lockstep::view(own);
    views.loss_mask = lockstep::view(mask);
    views.weights = lockstep::view(weights);
    must(same(recipe.loss(device, rollouts, lockstep::credit(views)).coef(), once.coef()), "a credit of one's own");

    // A plan on the CPU, which uses host memory.
    const lockstep::plan plan(recipe, lockstep::plan_options(10, 4, 2));
    std::vector<double> workspace(plan.workspace_bytes() / sizeof(double) + 1);
    const auto bytes = workspace.size() * sizeof(double);
    plan.enqueue(device, nullptr, rollouts, workspace.data(), bytes);
    plan.alarms(device, nullptr, workspace.data(), bytes);
    plan.run(device, nullptr, rollouts, workspace.data(), bytes);
    const auto slot = plan.slot("coef");
    must(std::memcmp(reinterpret_cast<const char *>(workspace.data()) + slot.offset, once.coef().data(), 40) == 0, "plan");
    const auto placed = [&](const char *name) { return reinterpret_cast<const char *>(workspace.data()) + plan.slot(name).offset; };
    std::array<float, 2> maxima;
    std::memcpy(maxima.data(), placed("maxima"), sizeof maxima);
    const auto *sums = reinterpret_cast<const double *>(placed("sums"));
    const auto of_plan = lockstep::metrics(10, {sums, plan.slot("sums").len}, maxima);
    must(std::memcmp(of_plan.data(), once.metrics().data(), of_plan.size() * sizeof(double)) == 0, "metrics of a plan");
    must(plan.slots().size() > 5 && plan.launches().size() == 4 && plan.host_stages().empty(), "lists of a plan");

    // Exact totals, by bytes and by limbs.
    const lockstep::totals of(once);
    const auto limbs = of.limbs();
    lockstep::totals sum;
    sum += lockstep::totals(limbs.first, limbs.second);
    const auto crossed = of.bytes();
    must(sum.metrics().size() == once.metrics().size() && sum.metrics()[0] == once.metrics()[0], "metrics of totals");
    must(sum.bytes() == crossed && lockstep::totals(crossed).loss() == sum.loss() && of.counts()[0] == 10, "totals");

    throws(LS_STATUS_RECIPE, "", -1, [] { lockstep::recipe("dapoo"); });
    throws(LS_STATUS_DEVICE, "", -1, [] { lockstep::device("tpu"); });
    throws(LS_STATUS_ABSENT, "name", -1, [&] { plan.slot("gradient"); });
    throws(LS_STATUS_POINTER, "output", -1, [] { lockstep::output().loss(); });
    logp[7] = 1.0f;
    throws(LS_STATUS_ARGUMENT, "logp", 7, [&] { recipe.loss(device, rollouts, credit); });
    throws(LS_STATUS_ARGUMENT, "logp", 7, [&] { plan.run(device, nullptr, rollouts, workspace.data(), bytes); });
    try {
        credit.array<double>("advantage");
        must(false, "another type");
    } catch (const std::invalid_argument &) {
    }
    std::printf("the wrapper does what the calls do\n");
}
