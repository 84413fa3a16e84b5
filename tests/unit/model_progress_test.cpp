// Loading a model and measuring its tables tell the caller how far they are, and end when it throws.
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <thread>

#include "model/model.h"
#include "model_support.h"

namespace clebsch {
namespace {

using testing::model_path;

struct Seen {
  std::map<std::string, std::size_t> last, totals;
  std::thread::id caller = std::this_thread::get_id();

  Progress progress() {
    return [this](const std::string& what, std::size_t done, std::size_t total) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_GE(done, last[what]) << what;
      EXPECT_LE(done, total) << what;
      if (totals.count(what) > 0) {
        EXPECT_EQ(totals[what], total) << what;
      }
      last[what] = done;
      totals[what] = total;
    };
  }
};

TEST(ModelProgress, LoadingAndReportsCountTheirTables) {
  Seen seen;
  LoadOptions options;
  options.threads = 2;
  options.progress = seen.progress();
  const auto model = Model::load(model_path("plain"), options);
  EXPECT_EQ(seen.last.size(), 2u);
  const auto reports = model->tables(seen.progress());
  EXPECT_EQ(seen.last, seen.totals);  // all came to their end
  std::size_t tables = 0;
  for (const TableReport& report : reports) tables += static_cast<std::size_t>(report.tables);
  EXPECT_EQ(seen.totals.at("radial tables"), tables);
  EXPECT_EQ(seen.totals.at("errors of radial tables"), tables);

  const auto quiet = Model::load(model_path("plain"), {})->tables();
  ASSERT_EQ(quiet.size(), reports.size());
  for (std::size_t k = 0; k < quiet.size(); ++k) {
    EXPECT_EQ(quiet[k].value_error, reports[k].value_error);
    EXPECT_EQ(quiet[k].slope_error, reports[k].slope_error);
  }
}

TEST(ModelProgress, WhatItThrowsReachesTheCallerFromEveryStep) {
  for (const std::string wanted : {"steepness of radial functions", "radial tables", "errors of radial tables"}) {
    const Progress progress = [&](const std::string& what, std::size_t, std::size_t) {
      if (what == wanted) throw std::runtime_error("enough of " + what);
    };
    LoadOptions options;
    options.threads = 2;
    options.progress = progress;
    std::string message;
    try {
      Model::load(model_path("plain"), options)->tables(progress);
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "enough of " + wanted);
  }
}

}  // namespace
}  // namespace clebsch
