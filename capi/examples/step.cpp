// What step.c does, with lockstep.hpp.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <vector>

#include "lockstep.hpp"

template <class To, class From>
static To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bytes");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

int main() {
    try {
        const std::vector<std::uint32_t> cu_seqlens{0, 3, 5, 7, 10}, cu_groups{0, 2, 4};
        const std::vector<float> rewards{1, 0, 0, 1};
        const std::vector<float> logp_old{-0.5f, -1.0f, -0.25f, -2.0f, -0.375f, -0.875f, -1.125f, -0.5f, -0.625f, -0.125f};
        std::vector<float> logp(10);

        const lockstep::device device("cpu");
        const lockstep::recipe recipe("dapo");
        lockstep::rollouts rollouts;
        rollouts.cu_seqlens = lockstep::view(cu_seqlens);
        rollouts.cu_groups = lockstep::view(cu_groups);
        rollouts.rewards = lockstep::view(rewards);
        rollouts.logp_old = lockstep::view(logp_old);
        rollouts.logp = lockstep::view(logp);

        const auto credit = recipe.advantages(device, rollouts);
        lockstep::output output;
        for (const float factor : {1.0f, 0.75f}) {
            for (std::size_t i = 0; i < logp.size(); i++) logp[i] = logp_old[i] * factor;
            recipe.loss(device, rollouts, credit, output);
            std::printf("loss %016" PRIx64 "\ncoef", bits<std::uint64_t>(output.loss()));
            for (const float x : output.coef()) std::printf(" %08" PRIx32, bits<std::uint32_t>(x));
            std::printf("\n");
        }

        // What is wrong is an exception, with the argument and the index.
        logp[4] = 0.5f;
        try {
            recipe.loss(device, rollouts, credit, output);
            return 1;
        } catch (const lockstep::error &error) {
            std::fprintf(stderr, "refused, as it must be: %s[%lld]: %s\n", error.argument().c_str(),
                         static_cast<long long>(error.index()), error.what());
            return error.argument() == "logp" && error.index() == 4 ? 0 : 1;
        }
    } catch (const lockstep::error &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
