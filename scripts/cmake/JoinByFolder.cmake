# join_by_folder(TARGET): where CMAKE_UNITY_BUILD is on, the files of a folder are compiled as one,
# which takes a third of the time. The presets of the sanitizers and of clang-tidy do so; that each
# file compiles by itself, without a warning, is what the preset `dev` shows. A folder's files
# therefore share their unnamed namespace: no name stands in two of them.
function(join_by_folder target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER "${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${group}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()
