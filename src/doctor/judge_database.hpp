#pragma once

#include <string>

#include "doctor/database_facts.hpp"
#include "doctor/finding.hpp"

namespace dlock {

// From facts to findings: pure, and in the order in which people read them.

/// `ttl`: the lease of the locks that it is judged for.
Findings judge_database(const DatabaseFacts& facts, milliseconds ttl);

/// Whether the database keeps locks through crashes and failovers, in judge_durability.cpp.
Finding judge_durability(const DatabaseFacts& facts);
Finding judge_standbys(const DatabaseFacts& facts);

/// The worth of locks there, in some words.
std::string database_label(const DatabaseFacts& facts);

/// Whether locks may be tried there: nothing but a primary takes any.
bool takes_locks(const DatabaseFacts& facts);

}  // namespace dlock
