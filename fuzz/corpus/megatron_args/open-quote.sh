A="x
--num-layers