/* Included before every mlx-c source. */
#pragma once
#ifdef __cplusplus

/* libstdc++ 12 has no <format>. mlx-c only ever uses "{}" placeholders, so this much is enough. */
#include <string>
#include <version>
#if !defined(__cpp_lib_format) && !(defined(__has_include) && __has_include(<format>))
#include <sstream>
#include <string_view>
namespace std {
inline void mlxc_format_into(ostringstream &out, string_view text) { out << text; }

template <class First, class... Rest>
void mlxc_format_into(ostringstream &out, string_view text, const First &first, const Rest &...rest)
{
    auto hole = text.find("{}");
    if (hole == string_view::npos) {
        out << text;
        return;
    }
    out << text.substr(0, hole) << first;
    mlxc_format_into(out, text.substr(hole + 2), rest...);
}

template <class... Args>
string format(string_view text, const Args &...args)
{
    ostringstream out;
    mlxc_format_into(out, text, args...);
    return out.str();
}
} // namespace std
#else
#include <format>
#endif

/* mlx-c exposes the fp16 and bf16 accessors on ARM only; MLX itself has both types everywhere. */
#include "mlx/types/half_types.h"
using mlx::core::bfloat16_t;
using mlx::core::float16_t;
#define HAS_FLOAT16
#define HAS_BFLOAT16
#endif
