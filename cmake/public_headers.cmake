# The public headers, installed as <fwht/NAME>. In the tree they lie beside their code and include each other as
# "common/x.hpp"; installation rewrites those lines to <fwht/x.hpp>. So a header exists once, the tree needs no
# forwarding files, and a public header that includes an internal one is refused here.
set(FWHT_PUBLIC_HEADERS
  common/host/communicator.hpp common/device/device_info.hpp common/contract/dtype.hpp common/contract/encoding.hpp common/host/error.hpp
  common/contract/family.hpp common/host/text.hpp
  common/contract/hadamard_matrices.hpp common/device/nccl.hpp common/contract/numerics.hpp common/contract/operator.hpp common/contract/operator_data.hpp
  common/contract/ordering.hpp
  common/contract/preparation.hpp common/contract/problem.hpp common/contract/scale_layout.hpp common/contract/scratch.hpp common/contract/variant.hpp
  variants/registry.hpp variants/library/sharded/sharded.hpp variants/library/transform.hpp variants/library/walsh.hpp)

# Writes the rewritten headers of `source_dir` to `folder`; those that have not changed stay, so that nobody is rebuilt.
function(fwht_write_public_headers source_dir folder)
  foreach(header IN LISTS FWHT_PUBLIC_HEADERS)
    file(READ ${source_dir}/${header} text)
    foreach(other IN LISTS FWHT_PUBLIC_HEADERS)
      get_filename_component(name ${other} NAME)
      string(REPLACE "#include \"${other}\"" "#include <fwht/${name}>" text "${text}")
    endforeach()
    if(text MATCHES "#include (\"[^\"\n]*\")")
      message(FATAL_ERROR "fwht: the public header ${header} includes ${CMAKE_MATCH_1}, which is not installed")
    endif()
    get_filename_component(name ${header} NAME)
    set(before "")
    if(EXISTS ${folder}/${name})
      file(READ ${folder}/${name} before)
    endif()
    if(NOT "${before}" STREQUAL "${text}")
      file(WRITE ${folder}/${name} "${text}")
    endif()
  endforeach()
endfunction()
