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

  /// The sample; Error if there is none.
  double at(const std::string& name, const Labels& labels) const;
  bool has(const std::string& name, const Labels& labels) const;
};

/// Parses the text format of Prometheus, version 0.0.4, more strictly than it demands: every metric
/// has a HELP and then a TYPE line, followed by all its samples, each only once; names of counters
/// end in _total; no timestamps; UTF-8; a newline at the end. Throws Error that names the line.
Exposition parse_exposition(const std::string& text);

}  // namespace dlock::test
