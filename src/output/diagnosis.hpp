#pragma once

#include <string>

#include "doctor/finding.hpp"

namespace dlock {

/// The server's name, a line a check and one for the verdict: level, check, what was found, and
/// behind `->` what to do. Where `columns` is not 0, longer lines go on below their text.
std::string diagnosis_text(const Diagnosis& diagnosis, std::size_t columns);

/// The same as one object on one line.
std::string diagnosis_json(const Diagnosis& diagnosis);

}  // namespace dlock
