#pragma once

#include <string>

#include "doctor/finding.hpp"
#include "output/screen.hpp"

namespace dlock {

/// The server's name, a line a check and one for the verdict: level, check, what was found, and
/// behind `->` what to do. On a terminal longer lines go on below their text, and levels have
/// colours.
std::string diagnosis_text(const Diagnosis& diagnosis, const Screen& screen);

/// The same as one object on one line.
std::string diagnosis_json(const Diagnosis& diagnosis);

}  // namespace dlock
