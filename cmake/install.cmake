# Installation: the program, one library and one folder of headers per folder of src/, and a CMake package, so that
# another project writes find_package(weft) and links weft::plan.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
get_property(libraries GLOBAL PROPERTY WEFT_LIBRARIES)

if(TARGET weft)
  install(TARGETS weft RUNTIME)
endif()
install(TARGETS ${libraries} EXPORT weftTargets)
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${package_dir})

# The package asks for exactly the packages the libraries link: fmt::fmt comes from the package fmt.
set(packages "")
foreach(library ${libraries})
  target_compile_features(${library} INTERFACE cxx_std_20)  # whoever includes our headers needs it
  get_target_property(folder ${library} SOURCE_DIR)
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/src ${folder})
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft/${name}
          FILES_MATCHING PATTERN "*.hpp" PATTERN "test_*" EXCLUDE)

  get_target_property(linked ${library} INTERFACE_LINK_LIBRARIES)
  string(REGEX MATCHALL "[A-Za-z0-9_]+::" namespaces "${linked}")
  list(TRANSFORM namespaces REPLACE "::" "")
  list(APPEND packages ${namespaces})
endforeach()
list(REMOVE_ITEM packages weft)
list(REMOVE_DUPLICATES packages)
list(SORT packages)
set(WEFT_FIND_DEPENDENCIES "")
foreach(package ${packages})
  string(APPEND WEFT_FIND_DEPENDENCIES "find_dependency(${package})\n")
endforeach()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/weftConfig.cmake.in ${PROJECT_BINARY_DIR}/weftConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weftConfig.cmake ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
        DESTINATION ${package_dir})

install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL FILES_MATCHING PATTERN "*.md")
