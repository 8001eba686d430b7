#pragma once

#include <map>
#include <string>
#include <vector>

namespace dlock::test {

/// Metrics as a scraper reads them.
struct Exposition {
  using Labels = std::map<std::string, std::string>;
  struct Metric {
    std::string type;
    std::string help;
    std::map<Labels, double> samples;
  };
  std::map<std::string, Metric> metrics;

  /// The sample; an Error if there is none.
  double at(const std::string& name, const Labels& labels) const;
  bool has(const std::string& name, const Labels& labels) const;
};

/// Reads the text format of Prometheus, version 0.0.4, more strictly than it asks for: every metric
/// has a HELP and then a TYPE line, its samples stand together behind them, and none of them stands
/// there twice; names of counters end in _total; no time stamps; UTF-8; a newline at the end.
/// Throws Error that names the line.
Exposition parse_exposition(const std::string& text);

}  // namespace dlock::test
