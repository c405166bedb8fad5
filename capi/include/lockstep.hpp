// Lockstep for C++17: lockstep.h with owning objects, spans and exceptions. Header only. lockstep.h documents
// what each object and span holds.
#ifndef LOCKSTEP_HPP
#define LOCKSTEP_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep.h"

namespace lockstep {

/// A failed call.
class error : public std::runtime_error {
public:
    /// Describes the thread's last failed call.
    explicit error(ls_status status)
        : std::runtime_error(ls_last_error()), status_(status), argument_(text(ls_last_error_argument())),
          index_(ls_last_error_index()) {}
    ls_status status() const noexcept { return status_; }
    /// The argument or column at fault; empty if none was.
    const std::string &argument() const noexcept { return argument_; }
    /// The index of the bad entry; -1 if the fault is not in an array's entry.
    std::int64_t index() const noexcept { return index_; }

private:
    static std::string text(const char *from) { return from == nullptr ? std::string() : std::string(from); }
    ls_status status_;
    std::string argument_;
    std::int64_t index_;
};

/// Throws unless the call succeeded.
inline void need(ls_status status) {
    if (status != LS_STATUS_OK) throw error(status);
}

/// A view of elements that something else owns.
template <class T>
class span {
public:
    constexpr span() noexcept : data_(nullptr), size_(0) {}
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    /// Views a vector, an array, or anything with `data()` and `size()`.
    template <class C, class = decltype(static_cast<T *>(std::declval<C &>().data()))>
    constexpr span(C &of) noexcept : data_(of.data()), size_(of.size()) {}
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }

private:
    T *data_;
    std::size_t size_;
};

namespace detail {
/// Maps an element type to its C span and its `ls_element`.
template <class T> struct element;
template <> struct element<std::uint8_t> { using view = ls_span_u8; static constexpr ls_element number = LS_ELEMENT_U8; };
template <> struct element<std::uint32_t> { using view = ls_span_u32; static constexpr ls_element number = LS_ELEMENT_U32; };
template <> struct element<std::uint64_t> { using view = ls_span_u64; static constexpr ls_element number = LS_ELEMENT_U64; };
template <> struct element<float> { using view = ls_span_f32; static constexpr ls_element number = LS_ELEMENT_F32; };
template <> struct element<double> { using view = ls_span_f64; static constexpr ls_element number = LS_ELEMENT_F64; };

template <class T, void (*Free)(T *)>
struct freed {
    void operator()(T *of) const noexcept { Free(of); }
};
template <class T, void (*Free)(T *)>
using owner = std::unique_ptr<T, freed<T, Free>>;

/// Returns the handle that `open` makes.
template <class Owner, class Open>
Owner made(Open open) {
    typename Owner::pointer handle = nullptr;
    need(open(&handle));
    return Owner(handle);
}

/// Returns the entries that `write(to, capacity)` writes.
template <class T, class Write>
std::vector<T> listed(Write write) {
    std::vector<T> entries(write(static_cast<T *>(nullptr), std::size_t(0)));
    if (!entries.empty()) write(entries.data(), entries.size());
    return entries;
}

/// Returns the array with a name, empty if it does not exist; throws if it has another type.
template <class T, class Find>
span<const T> array(Find find) {
    ls_array found{};
    const ls_status status = find(&found);
    if (status == LS_STATUS_ABSENT) return {};
    need(status);
    if (found.element != element<T>::number) throw std::invalid_argument(std::string(found.name) + " has elements of another type");
    return {static_cast<const T *>(found.data), found.len};
}
} // namespace detail

/// Makes a column of `rollouts` from a vector, an array or a span; not from a temporary, which would dangle. An
/// empty vector, which may have no address, is a column without entries; a `span` without an address is absent.
template <class C, class T = std::remove_const_t<std::remove_pointer_t<decltype(std::declval<const C &>().data())>>>
typename detail::element<T>::view view(const C &of) noexcept {
    static const T none{};
    return {of.data() ? of.data() : &none, of.size()};
}
template <class T> typename detail::element<std::remove_const_t<T>>::view view(const span<T> &of) noexcept {
    return {of.data(), of.size()};
}
template <class C> void view(const C &&) = delete;
/// The same from an address, in any memory.
template <class T>
typename detail::element<std::remove_const_t<T>>::view view(T *data, std::size_t size) noexcept {
    return {data, size};
}

/// The columns of a batch, initially all absent.
struct rollouts : ls_rollouts {
    rollouts() noexcept : ls_rollouts{} { size = sizeof(ls_rollouts); }
};

/// The parts of a credit that a loss reads, initially absent.
struct credit_views : ls_credit_views {
    credit_views() noexcept : ls_credit_views{} { size = sizeof(ls_credit_views); }
};

/// The device that a call or plan runs on.
class device {
public:
    explicit device(const std::string &name = "cpu", std::size_t threads = 0)
        : own_(detail::made<decltype(own_)>([&](ls_device **out) { return ls_device_open(name.c_str(), threads, out); })) {}
    std::string describe() const { return ls_device_describe(get()); }
    const ls_device *get() const noexcept { return own_.get(); }

private:
    detail::owner<ls_device, ls_device_free> own_;
};

/// The advantages of a batch and everything else that its loss reads.
class credit {
public:
    /// Copies the caller's advantages, or a part of another credit's arrays.
    explicit credit(const ls_credit_views &views)
        : own_(detail::made<decltype(own_)>([&](ls_credit **out) { return ls_credit_new(&views, out); })) {}
    explicit credit(ls_credit *own) noexcept : own_(own) {}
    /// An array by name; empty if the recipe does not make it.
    template <class T>
    span<const T> array(const char *name) const {
        return detail::array<T>([&](ls_array *out) { return ls_credit_array(get(), name, out); });
    }
    span<const float> advantage() const { return array<float>("advantage"); }
    std::vector<ls_array> arrays() const {
        return detail::listed<ls_array>([&](ls_array *to, std::size_t n) { return ls_credit_arrays(get(), to, n); });
    }
    const ls_credit *get() const noexcept { return own_.get(); }

private:
    detail::owner<ls_credit, ls_credit_free> own_;
};

/// The loss, gradients and metrics of a batch; initially empty.
class output {
public:
    output() noexcept = default;
    explicit output(ls_output *own) noexcept : own_(own) {}
    /// An array by name; empty if the recipe does not make it or the call did not ask for it.
    template <class T>
    span<const T> array(const char *name) const {
        return detail::array<T>([&](ls_array *out) { return ls_output_array(get(), name, out); });
    }
    /// dL/dlogp.
    span<const float> coef() const { return array<float>("coef"); }
    /// The loss; throws if the call did not ask for it.
    double loss() const {
        ls_array found{};
        need(ls_output_array(get(), "loss", &found));
        return *static_cast<const double *>(found.data);
    }
    /// The metrics, in the order of `ls_metric_name_at`.
    span<const double> metrics() const { return array<double>("metrics"); }
    std::vector<ls_array> arrays() const {
        return detail::listed<ls_array>([&](ls_array *to, std::size_t n) { return ls_output_arrays(get(), to, n); });
    }
    const ls_output *get() const noexcept { return own_.get(); }
    ls_output *get() noexcept { return own_.get(); }

private:
    detail::owner<ls_output, ls_output_free> own_;
};

/// A recipe, by name or from TOML: one choice for each stage from rewards to gradients.
class recipe {
public:
    explicit recipe(const std::string &source)
        : own_(detail::made<decltype(own_)>([&](ls_recipe **out) { return ls_recipe_open(source.c_str(), out); })) {}
    std::string name() const { return ls_recipe_name(get()); }
    std::string toml() const { return ls_recipe_toml(get()); }
    std::string explain() const { return ls_recipe_explain(get()); }
    bool per_token() const { return ls_recipe_per_token(get()) != 0; }
    std::vector<ls_need> needs() const {
        return detail::listed<ls_need>([&](ls_need *to, std::size_t n) { return ls_recipe_needs(get(), to, n); });
    }
    std::vector<ls_duty> duties() const {
        return detail::listed<ls_duty>([&](ls_duty *to, std::size_t n) { return ls_recipe_duties(get(), to, n); });
    }
    credit advantages(const device &on, const ls_rollouts &of) const {
        ls_credit *made = nullptr;
        need(ls_advantages(on.get(), get(), &of, &made));
        return credit(made);
    }
    /// Overwrites `to` and reuses its memory. Arrays read from it before become invalid.
    void loss(const device &on, const ls_rollouts &of, const credit &with, output &to,
              std::uint32_t outputs = LS_OUTPUT_ALL) const {
        if (to.get() == nullptr)
            to = loss(on, of, with, outputs);
        else
            need(ls_loss_into(on.get(), get(), &of, with.get(), outputs, to.get()));
    }
    output loss(const device &on, const ls_rollouts &of, const credit &with, std::uint32_t outputs = LS_OUTPUT_ALL) const {
        ls_output *made = nullptr;
        need(ls_loss(on.get(), get(), &of, with.get(), outputs, &made));
        return output(made);
    }
    std::pair<credit, output> step(const device &on, const ls_rollouts &of) const {
        ls_credit *earned = nullptr;
        ls_output *made = nullptr;
        need(ls_step(on.get(), get(), &of, &earned, &made));
        return {credit(earned), output(made)};
    }
    const ls_recipe *get() const noexcept { return own_.get(); }

private:
    detail::owner<ls_recipe, ls_recipe_free> own_;
};

namespace detail {
/// The strings that `at` returns, up to the first null.
inline std::vector<std::string> strings(const char *(*at)(std::size_t)) {
    std::vector<std::string> all;
    for (std::size_t i = 0; const char *one = at(i); i++) all.emplace_back(one);
    return all;
}
} // namespace detail

/// The names of all recipes.
inline std::vector<std::string> names() { return detail::strings(ls_recipe_name_at); }
/// The names of the metrics, in the order of `output::metrics`.
inline std::vector<std::string> metric_names() { return detail::strings(ls_metric_name_at); }
/// All columns of a batch.
inline std::vector<ls_column> columns() {
    std::vector<ls_column> all;
    for (ls_column one{}; ls_column_at(all.size(), &one) == LS_STATUS_OK;) all.push_back(one);
    return all;
}
/// The version of Lockstep.
inline std::string version() { return ls_version(); }
/// Whether the library has the interface that this header was written for.
inline bool same_abi() { return ls_abi_version() == LS_ABI_VERSION; }
/// The metrics from a plan's results `sums` and `maxima`, copied to the host, and the first of `counts`.
inline std::vector<double> metrics(std::uint64_t tokens, span<const double> sums, const std::array<float, 2> &maxima) {
    std::vector<double> to(metric_names().size());
    need(ls_metrics(tokens, sums.data(), sums.size(), maxima.data(), to.data(), to.size()));
    return to;
}

/// The options of a plan, initially both calls with all results.
struct plan_options : ls_plan_options {
    plan_options(std::uint64_t n, std::uint64_t s, std::uint64_t g) noexcept : ls_plan_options{} {
        size = sizeof(ls_plan_options);
        calls = LS_CALL_ADVANTAGES + LS_CALL_LOSS;
        tokens = n, sequences = s, groups = g;
        outputs = LS_OUTPUT_ALL;
    }
};

/// A plan: launches over device memory of a fixed size.
class plan {
public:
    plan(const recipe &of, const ls_plan_options &options)
        : own_(detail::made<decltype(own_)>([&](ls_plan **out) { return ls_plan_new(of.get(), &options, out); })) {}
    std::size_t workspace_bytes() const { return ls_plan_workspace_bytes(get()); }
    /// Where a result lies in the workspace; throws if the plan has no such result.
    ls_slot slot(const char *name) const {
        ls_slot found{};
        need(ls_plan_slot(get(), name, &found));
        return found;
    }
    std::vector<ls_slot> slots() const {
        return detail::listed<ls_slot>([&](ls_slot *to, std::size_t n) { return ls_plan_slots(get(), to, n); });
    }
    std::vector<const char *> launches() const {
        return detail::listed<const char *>([&](const char **to, std::size_t n) { return ls_plan_launches(get(), to, n); });
    }
    std::vector<ls_host_stage> host_stages() const {
        return detail::listed<ls_host_stage>([&](ls_host_stage *to, std::size_t n) { return ls_plan_host_stages(get(), to, n); });
    }
    /// See `ls_plan_enqueue`.
    void enqueue(const device &on, void *stream, const ls_rollouts &of, void *workspace, std::size_t bytes,
                 const ls_credit_views *with = nullptr) const {
        need(ls_plan_enqueue(get(), on.get(), stream, &of, with, workspace, bytes));
    }
    /// Waits for the stream; throws if a stage met a bad value.
    void alarms(const device &on, void *stream, void *workspace, std::size_t bytes) const {
        need(ls_plan_alarms(get(), on.get(), stream, workspace, bytes));
    }
    /// Runs the plan with every check, and waits.
    void run(const device &on, void *stream, const ls_rollouts &of, void *workspace, std::size_t bytes,
             const ls_credit_views *with = nullptr) const {
        need(ls_plan_run(get(), on.get(), stream, &of, with, workspace, bytes));
    }
    const ls_plan *get() const noexcept { return own_.get(); }

private:
    detail::owner<ls_plan, ls_plan_free> own_;
};

/// Exact totals of parts of a batch, initially of no rows.
class totals {
public:
    totals() : own_(detail::made<decltype(own_)>([](ls_totals **out) { return ls_totals_new(out); })) {}
    explicit totals(const output &of)
        : own_(detail::made<decltype(own_)>([&](ls_totals **out) { return ls_totals_of(of.get(), out); })) {}
    explicit totals(span<const std::uint8_t> bytes)
        : own_(detail::made<decltype(own_)>([&](ls_totals **out) { return ls_totals_from_bytes(bytes.data(), bytes.size(), out); })) {}
    totals(span<const std::int64_t> limbs, const std::array<double, 2> &maxima)
        : own_(detail::made<decltype(own_)>(
              [&](ls_totals **out) { return ls_totals_from_limbs(limbs.data(), limbs.size(), maxima.data(), out); })) {}
    totals &operator+=(const totals &other) {
        need(ls_totals_merge(own_.get(), other.get()));
        return *this;
    }
    std::vector<std::uint8_t> bytes() const {
        std::vector<std::uint8_t> to(LS_TOTALS_BYTES);
        need(ls_totals_to_bytes(get(), to.data(), to.size()));
        return to;
    }
    /// Integers to sum over ranks element by element, and numbers to reduce with the maximum.
    std::pair<std::vector<std::int64_t>, std::array<double, 2>> limbs() const {
        std::pair<std::vector<std::int64_t>, std::array<double, 2>> to(std::vector<std::int64_t>(LS_TOTALS_LIMBS), {});
        need(ls_totals_to_limbs(get(), to.first.data(), to.first.size(), to.second.data()));
        return to;
    }
    double loss() const {
        double to = 0;
        need(ls_totals_loss(get(), &to));
        return to;
    }
    std::array<std::uint64_t, 3> counts() const {
        std::array<std::uint64_t, 3> to{};
        need(ls_totals_counts(get(), to.data()));
        return to;
    }
    /// The metrics over all rows, in the order of `metric_names`.
    std::vector<double> metrics() const {
        std::vector<double> to(metric_names().size());
        need(ls_totals_metrics(get(), to.data(), to.size()));
        return to;
    }
    const ls_totals *get() const noexcept { return own_.get(); }

private:
    detail::owner<ls_totals, ls_totals_free> own_;
};

} // namespace lockstep

#endif
